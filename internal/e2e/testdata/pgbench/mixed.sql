-- One transaction with answers that the next statement needs.
\set id random(1, 1000)
BEGIN;
SELECT abalance AS before FROM pgbench_accounts WHERE aid = :id FOR UPDATE \gset
UPDATE pgbench_accounts SET abalance = :before + 1 WHERE aid = :id;
SELECT abalance - :before AS grown FROM pgbench_accounts WHERE aid = :id \gset
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (0, 0, :id, :grown, '2024-01-01');
END;
SELECT 1;
