-- Extended protocol only.
\set id random(1, 1000)
\startpipeline
BEGIN;
SELECT abalance FROM pgbench_accounts WHERE aid = :id;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :id;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, :id, 1, '2024-01-01');
END;
SELECT count(*) FROM pgbench_branches;
\endpipeline
