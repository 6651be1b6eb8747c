-- What needs no session.
DO $$ BEGIN RAISE DEBUG 'hidden'; RAISE NOTICE 'notice'; RAISE WARNING 'warning' USING DETAIL = 'detail', HINT = 'hint'; END $$;
SET client_min_messages = debug1;
RESET client_min_messages;
DROP TABLE IF EXISTS not_there;
DO $$ BEGIN RAISE EXCEPTION 'custom' USING ERRCODE = 'UE001', DETAIL = 'd', HINT = 'h', TABLE = 't', COLUMN = 'c'; END $$;

-- Large objects: psql calls the server's functions by the protocol's FunctionCall.
\set QUIET on
\lo_import :file 'a comment'
\set loid :LASTOID
SELECT length(lo_get(:loid)), md5(lo_get(:loid)), left(lo_get(:loid)::text, 20);
\lo_export :loid :file.out
\! cmp $FILE $FILE.out && echo identical
\lo_unlink :loid
\lo_unlink :loid
\lo_import /nowhere/at/all
\set QUIET off

-- A cursor in the background.
\set FETCH_COUNT 7
SELECT n, n * n AS square FROM generate_series(1, 20) n;
SELECT 1/(15 - n) FROM generate_series(1, 20) n;
\unset FETCH_COUNT
SELECT 5 AS five, 'x' AS x \gset
SELECT :five + 1, :'x';
SELECT format('SELECT %s', n) FROM generate_series(1, 3) n \gexec
SELECT 1 AS a, 2 AS b \gx
\set ON_ERROR_ROLLBACK on
BEGIN;
SELECT 1/0;
SELECT 'still here';
COMMIT;
\set ON_ERROR_ROLLBACK off
\set AUTOCOMMIT off
INSERT INTO item (id, name) VALUES (60, 'sixty');
ROLLBACK;
\set AUTOCOMMIT on
SELECT count(*) FROM item WHERE id = 60;
\encoding LATIN1
SHOW client_encoding;
\encoding UTF8
SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = iso_8601;
SELECT at, '1 day 2 hours'::interval FROM item WHERE id = 1;
SET DateStyle = nonsense;
RESET ALL;
\d item
\dt
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE id = 1;
CREATE FUNCTION fail(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE $1; END $$;
SELECT fail('SELECT 1/0');
VACUUM item;
BEGIN; VACUUM item; ROLLBACK;
SELECT string_agg(md5(n::text), '') FROM generate_series(1, 20000) n;
