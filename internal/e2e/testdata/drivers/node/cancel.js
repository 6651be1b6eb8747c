// Cancels of node-postgres. Prints what came of each.
const { Client } = require('pg');

const runs = "DO $$BEGIN RAISE NOTICE 'on'; PERFORM pg_sleep(60); END$$";

async function cancelled(client, name, start) {
  const query = start();
  const error = new Promise((resolve) => {
    client.once('notice', () => new Client().cancel(client, query.query));
    query.result.then(() => resolve('had no effect'), (e) => resolve(e.code));
  });
  console.log(name, await error);
  console.log('then', (await client.query("SELECT 'answered' AS it")).rows[0].it);
}

// cancel wants the object of the query, not the promise of its result.
function submit(client, text) {
  const { Query } = require('pg');
  const query = new Query(text);
  const result = new Promise((resolve, reject) => {
    query.on('end', resolve);
    query.on('error', reject);
  });
  client.query(query);
  return { query, result };
}

async function main() {
  const client = new Client();
  await client.connect();
  await cancelled(client, 'cancel', () => submit(client, runs));
  await cancelled(client, 'again', () => submit(client, runs));
  await client.query('BEGIN');
  const open = submit(client, runs);
  client.once('notice', () => new Client().cancel(client, open.query));
  console.log('in a transaction', await open.result.then(() => 'had no effect', (e) => e.code));
  await client.query('ROLLBACK');
  console.log('then', (await client.query("SELECT 'answered' AS it")).rows[0].it);
  await client.end();
}

main().catch((e) => {
  console.log(e);
  process.exit(1);
});
