# Every way that psycopg has to cancel. Prints what came of each.
import os
import signal
import threading

import psycopg

RUNS = "DO $$BEGIN RAISE NOTICE 'on'; PERFORM pg_sleep(60); END$$"

# Before 3.2 a connection interrupted by Ctrl-C may be left in the middle of its query, whatever the server does.
OLD = tuple(int(n) for n in psycopg.__version__.split(".")[:2]) < (3, 2)

conn = psycopg.connect(autocommit=True, prepare_threshold=None)
# Older versions have one way less.
cancel_safe = getattr(conn, "cancel_safe", conn.cancel)

started = threading.Event()
conn.add_notice_handler(lambda d: started.set())


def once_started(act):
    """Runs act on a thread as soon as the statement has said that it runs."""
    started.clear()

    def wait():
        if started.wait(30):
            act()

    t = threading.Thread(target=wait)
    t.start()
    return t


for name, act in [
    ("cancel", conn.cancel),
    ("cancel_safe", cancel_safe),
    ("interrupt", lambda: os.kill(os.getpid(), signal.SIGINT)),
]:
    t = once_started(act)
    try:
        conn.execute(RUNS)
        print(name, "had no effect")
    except psycopg.Error as e:
        print(name, e.sqlstate)
    except KeyboardInterrupt:
        print(name, "KeyboardInterrupt")
    t.join()
    if OLD and name == "interrupt":
        conn.close()
        conn = psycopg.connect(autocommit=True, prepare_threshold=None)
        conn.add_notice_handler(lambda d: started.set())
    print("then", conn.execute("SELECT 'answered'").fetchone()[0], conn.info.transaction_status.name)

with conn.transaction():
    try:
        with conn.transaction():  # a savepoint
            t = once_started(conn.cancel)
            conn.execute(RUNS)
    except psycopg.errors.QueryCanceled as e:
        print("in a transaction", e.sqlstate)
    t.join()
    print("then", conn.execute("SELECT 'answered'").fetchone()[0])
conn.close()
