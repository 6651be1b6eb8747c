-- The part that every server version runs.
\set VERBOSITY verbose
\set SHOW_CONTEXT always
\pset null (null)
CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, price numeric(10, 2), at timestamptz DEFAULT '2024-02-29 12:00:00Z');
INSERT INTO item (id, name, price) VALUES (1, 'one', 1.5), (2, 'two', NULL), (3, 'drei ü', 3);
INSERT INTO item (id, name) VALUES (1, 'again');
INSERT INTO item (id, name) VALUES (4, NULL);
SELECT * FROM item ORDER BY id;
UPDATE item SET price = coalesce(price, 0) + 1 RETURNING id, price;
DELETE FROM item WHERE id = 2;
SELECT 1; ; SELECT 2 \; SELECT 3;
SELECT nothing;
\errverbose
SELECT 1/0;
SELEC;

BEGIN;
INSERT INTO item (id, name) VALUES (10, 'ten');
SAVEPOINT a;
INSERT INTO item (id, name) VALUES (10, 'ten again');
SELECT 1;
ROLLBACK TO a;
SELECT count(*) FROM item;
COMMIT;
BEGIN; SELECT 1/0; SELECT 2; COMMIT;
SELECT count(*) FROM item;

COPY item (id, name) FROM STDIN;
20	twenty
21	with\ttab
22	\\backslash
\.
COPY item (id, name) FROM STDIN;
30	thirty
x31	nonsense
32	never
\.
COPY item (id, name) FROM STDIN WITH (FORMAT csv);
40,"a, b"
\.
COPY (SELECT id, name FROM item ORDER BY id) TO STDOUT;
COPY (SELECT 1/(3 - n) FROM generate_series(1, 5) n) TO STDOUT;
\copy (SELECT id, name FROM item ORDER BY id DESC) TO STDOUT (FORMAT csv, HEADER)
\copy item (id, name) FROM PROGRAM 'printf "50\tfifty\n51\tfifty-one\n"'
-- psql cannot read this file, and tells the server that the COPY has failed.
\copy item (id, name) FROM '/proc/self/mem'
SELECT count(*), sum(id) FROM item;
SELECT repeat('0123456789', 20000) AS big, n FROM generate_series(1, 3) n;
