"""What psycopg does, written to standard output: run once at the server itself and once through Fencepost.

The connection is described by libpq's environment variables. Arguments: full (all of it), session (what lasts for a
session, and prepared statements under names). Works with psycopg 3.1 (Debian 12) and newer.
"""

import datetime
import hashlib
import logging
import sys
import threading

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

# psycopg warns of what depends on timing: whether an answer was there before a pipeline was left.
logging.getLogger("psycopg").setLevel(logging.ERROR)

FULL, SESSION = "full" in sys.argv, "session" in sys.argv


def short(value):
    text = repr(value)
    if len(text) > 200:
        text = f"{text[:50]}... {len(text)} {hashlib.md5(text.encode()).hexdigest()}"
    return text


def note(*parts):
    print(*(p if isinstance(p, str) else short(p) for p in parts), flush=True)


def fails(what, call):
    """Runs call, which may fail, and notes how."""
    try:
        note(what, call())
    except psycopg.Error as e:
        d = e.diag
        note(what, type(e).__name__, str(e.sqlstate), str(d.severity), str(d.message_primary), str(d.message_detail),
             str(d.message_hint), str(d.context))
    except RuntimeError as e:
        note(what, "RuntimeError", str(e))


def rows(conn, query, params=None, **kw):
    with conn.cursor(**kw) as cur:
        cur.execute(query, params)
        note(str(query)[:80], cur.statusmessage, [(c.name, c.type_code) for c in cur.description or ()])
        if cur.description:
            for row in cur:
                note("  ", row)


def crud(conn):
    at = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc)
    for i in range(12):
        rows(conn, "INSERT INTO item VALUES (%s, %s, %s, %s, %s)", (i, f"näme {i}", bytes([0, i, 255]), at, ["a", "b'c"]))
    rows(conn, "SELECT * FROM item WHERE id < %s ORDER BY id", (3,))
    rows(conn, "SELECT * FROM item WHERE id < %s ORDER BY id", (2,), binary=True)
    rows(conn, "SELECT id, name FROM item WHERE id = %(id)s", {"id": 4}, row_factory=dict_row)
    rows(conn, "UPDATE item SET name = upper(name) WHERE id %% 2 = %s RETURNING id", (0,))
    rows(conn, "DELETE FROM item WHERE id = %s", (11,))
    for query, params in [("INSERT INTO item (id, name) VALUES (%s, %s)", (1, "again")), ("INSERT INTO item (id) VALUES (100)", None),
                          ("SELECT 1/%s", (0,)), ("SELECT nothing", None), ("SELEC", None), ("SELECT %s::int", ("x",)), ("", None)]:
        fails(query, lambda: conn.execute(query, params).statusmessage)
    with conn.cursor() as cur:
        cur.executemany("INSERT INTO item (id, name) VALUES (%s, %s) RETURNING id", [(i, f"many {i}") for i in range(200, 210)], returning=True)
        for result in [cur.fetchall()] + [cur.fetchall() for _ in range(9) if cur.nextset()]:
            note("executemany", result)


def transactions(conn):
    for commit in (True, False):
        with conn.transaction(force_rollback=not commit):
            conn.execute("INSERT INTO item (id, name) VALUES (300, 'x') ON CONFLICT (id) DO UPDATE SET name = item.name || 'x'")
            try:
                with conn.transaction():
                    conn.execute("INSERT INTO item (id, name) VALUES (300, 'again')")
            except psycopg.errors.UniqueViolation as e:
                note("inner", e.diag.constraint_name)
            note("status", conn.info.transaction_status.name)
        rows(conn, "SELECT name FROM item WHERE id = 300")


def copy(conn):
    with conn.cursor() as cur:
        with cur.copy("COPY item (id, name) FROM STDIN") as c:
            for i in range(1000, 2000):
                c.write_row((i, "x" * (i % 100) + "\t\\\n"))
        note("COPY in", cur.statusmessage)

        def broken():
            with cur.copy("COPY item (id, name) FROM STDIN") as c:
                for i in range(2000, 2500):
                    c.write_row((i, "y"))
                raise psycopg.DataError("the source failed")

        fails("COPY aborted here", broken)

        def refused():
            with cur.copy("COPY item (id, name) FROM STDIN") as c:
                c.write("3000\ttext\nnonsense\n")
                for _ in range(100):
                    c.write("3001\tmore\n" * 5000)

        fails("COPY aborted there", refused)
        with cur.copy("COPY (SELECT id, name FROM item ORDER BY id) TO STDOUT") as c:
            data = b"".join(c)
        note("COPY out", data)
        with cur.copy("COPY (SELECT id, name FROM item WHERE id < 3 ORDER BY id) TO STDOUT (FORMAT binary)") as c:
            c.set_types(["int4", "text"])
            for row in c.rows():
                note("COPY binary", row)

        def half():
            with cur.copy("COPY (SELECT 1/(300 - n) FROM generate_series(1, 500) n) TO STDOUT") as c:
                note("COPY half", b"".join(c))

        fails("COPY that fails", half)

        def left():
            with cur.copy("COPY (SELECT repeat('z', 1000) FROM generate_series(1, 10000)) TO STDOUT") as c:
                note("COPY left", bytes(c.read())[:10])
                raise psycopg.DataError("enough")  # psycopg cancels the COPY

        fails("COPY not read to its end", left)
    rows(conn, "SELECT count(*), sum(length(name)) FROM item")


def pipeline(conn):
    with conn.pipeline() as p:
        cursors = [conn.execute("SELECT %s::int", (i,)) for i in range(10)]
        p.sync()
        note("pipeline", [c.fetchall() for c in cursors])
        one = conn.execute("INSERT INTO item (id, name) VALUES (400, 'pipelined') RETURNING id")
        note("early", one.fetchone())

    def broken():
        with conn.pipeline() as p:
            conn.execute("INSERT INTO item (id, name) VALUES (401, 'undone')")
            conn.execute("SELECT 1/(random() * 0)::int")
            conn.execute("INSERT INTO item (id, name) VALUES (402, 'skipped')")
            p.sync()

    fails("broken pipeline", broken)
    with conn.pipeline():
        with conn.transaction():
            conn.execute("INSERT INTO item (id, name) VALUES (403, 'in a transaction')")
    rows(conn, "SELECT id FROM item WHERE id BETWEEN 400 AND 410 ORDER BY id")


def largeObjects(conn):
    with conn.transaction():
        oid = conn.execute("SELECT lo_from_bytea(0, %s)", (b"0123456789" * 50000,)).fetchone()[0]
        fd = conn.execute("SELECT lo_open(%s, 393216)", (oid,)).fetchone()[0]
        rows(conn, "SELECT lo_lseek64(%s, -5, 2), loread(%s, 100), lo_tell64(%s)", (fd, fd, fd))
        rows(conn, "SELECT length(lo_get(%s)), md5(lo_get(%s))", (oid, oid))
        rows(conn, "SELECT lo_close(%s), lo_unlink(%s)", (fd, oid))


def notices(conn):
    seen = []
    conn.add_notice_handler(lambda d: seen.append((d.severity, d.sqlstate, d.message_primary, d.message_detail)))
    conn.execute("DO $$ BEGIN FOR i IN 1..3 LOOP RAISE NOTICE 'n%', i USING DETAIL = 'd'; END LOOP; RAISE WARNING 'w'; END $$")
    conn.execute("DROP TABLE IF EXISTS not_there")
    note("notices", seen)


def big(conn):
    for size in (1, 1000, 100000, 5000000):
        rows(conn, "SELECT length(%s), repeat('y', %s)", ("x" * size, size))
    rows(conn, "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 50000) n")
    with conn.transaction(), conn.cursor(name="cursor") as cur:  # DECLARE, FETCH
        cur.itersize = 100
        cur.execute("SELECT n, repeat('z', n) FROM generate_series(1, 1000) n")
        note("server cursor", sum(len(r[1]) for r in cur))
    with conn.cursor() as cur:
        note("stream", sum(r[0] for r in cur.stream("SELECT n FROM generate_series(1, 10000) n")))


def statements(conn):
    for query in ("SELECT 1; SELECT 'a', 'b'; ; SELECT 2", "SELECT 1; SELECT 1/0; SELECT 3", ";", "BEGIN; SELECT 1; ROLLBACK; SELECT 2"):
        def many():
            results = []
            with conn.cursor() as cur:
                cur.execute(query)
                while True:
                    results.append((cur.statusmessage, cur.fetchall() if cur.description else None))
                    if not cur.nextset():
                        return results
        fails(query, many)
    note(sql.SQL("{} = {}").format(sql.Identifier('a"b'), sql.Literal("it's")).as_string(conn))


def cancelled(conn):
    for i in range(3):
        timer = threading.Timer(0.3, getattr(conn, "cancel_safe", conn.cancel))
        timer.start()
        fails("cancelled", lambda: conn.execute("SELECT pg_sleep(20)").statusmessage)
        timer.join()
        rows(conn, "SELECT 'after', %s", (i,))


def session(conn):
    heard = []
    conn.add_notify_handler(lambda n: heard.append((n.channel, n.payload)))
    conn.execute("LISTEN here")
    conn.execute("NOTIFY here, 'one'")
    conn.execute("SELECT pg_notify('here', 'two')")
    conn.execute("SELECT 1")
    note("notified", heard)
    for i in range(12):  # prepared from the sixth on
        rows(conn, "SELECT id, name FROM item WHERE id = %s", (i,))
    rows(conn, "SELECT count(*) FROM pg_prepared_statements")
    conn.execute("CREATE TEMP TABLE gone (n int)")
    rows(conn, "SELECT count(*) FROM gone")
    with conn.cursor(name="held", withhold=True) as cur:
        cur.execute("SELECT generate_series(1, 5)")
        note("held", cur.fetchall())


with psycopg.connect(autocommit=True, application_name="psycopg script") as conn:
    note(conn.info.parameter_status("application_name"), str(conn.info.encoding), conn.info.server_version)
    conn.execute("CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, data bytea, at timestamptz, tags text[])")
    steps = [crud, transactions, copy, pipeline]
    if FULL:
        steps += [largeObjects, notices, big, statements, cancelled]
    if SESSION:
        steps += [session]
    for step in steps:
        note("===", step.__name__)
        step(conn)
        note("status", conn.info.transaction_status.name)
    conn.execute("DROP TABLE item")
