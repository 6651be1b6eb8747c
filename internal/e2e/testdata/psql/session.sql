-- What lasts for a session.
LISTEN here;
NOTIFY here, 'hello';
SELECT 1;
BEGIN; NOTIFY here, 'from a transaction'; SELECT pg_notify('here', 'two'); COMMIT;
UNLISTEN *;
NOTIFY here, 'nobody hears';
PREPARE p (int) AS SELECT $1 * 2;
EXECUTE p (21);
EXECUTE p ('x');
DEALLOCATE p;
EXECUTE p (1);
SELECT name, price FROM item ORDER BY id \gdesc
CREATE TEMP TABLE t AS SELECT generate_series(1, 3) AS n;
SELECT sum(n) FROM t;
DECLARE c CURSOR WITH HOLD FOR SELECT n FROM t ORDER BY n;
FETCH 2 FROM c;
FETCH ALL FROM c;
CLOSE c;
SELECT pg_try_advisory_lock(42);
SELECT pg_advisory_unlock(42), pg_advisory_unlock(42);
SET work_mem = '5MB';
SHOW work_mem;
DISCARD ALL;
SHOW work_mem;
SELECT * FROM t;
