"""Clients that write until standard input ends, one line of standard output for all they see:

    commit  client  port  time        a transaction was committed on the server with this port
    wrong   client  port  what        a new transaction was on a server that takes no writes
    error   client  SQLSTATE  text

Arguments: the number of clients, the statement that asks the server what it is. The connection is described by libpq's
environment variables.
"""

import logging
import sys
import threading
import time

import psycopg

# psycopg warns of a ROLLBACK that fails behind an error; the error is what is told.
logging.getLogger("psycopg").setLevel(logging.ERROR)

stop = threading.Event()
lock = threading.Lock()


def say(*parts):
    with lock:
        print(*(str(p).replace("\n", " ").replace("\t", " ") for p in parts), sep="\t", flush=True)


def write(conn, me, n):
    with conn.transaction():
        port, standby, read_only = conn.execute(sys.argv[2]).fetchone()
        if standby or read_only != "off":
            say("wrong", me, port, f"in recovery {standby}, read only {read_only}")
        conn.execute("INSERT INTO written VALUES (%s, %s)", (f"psycopg {me}", n))
    return port


def client(me):
    conn, n = None, 0
    while not stop.wait(0.005):
        n += 1
        try:
            if conn is None or conn.closed or conn.broken:
                conn = psycopg.connect(autocommit=True, prepare_threshold=None)
            say("commit", me, write(conn, me, n), time.time())
        except psycopg.Error as e:
            say("error", me, e.sqlstate or "none", e)
        except AssertionError:  # older ones count a transaction whose BEGIN was refused as open
            conn.close()
    if conn is not None:
        conn.close()


threads = [threading.Thread(target=client, args=(i,)) for i in range(int(sys.argv[1]))]
for t in threads:
    t.start()
sys.stdin.read()
stop.set()
for t in threads:
    t.join()
