// Another language needs SQL alone: write snapshots, read memory. Nothing is sent: the worker's sweep finds them.
// Usage: DATABASE_URL=postgresql://... node main.mjs SESSION
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

const sessionId = process.argv[2];
if (!sessionId || !process.env.DATABASE_URL) {
  console.error("usage: DATABASE_URL=postgresql://... node main.mjs SESSION");
  process.exit(2);
}

const snapshots = [
  "Zoe wants the shop's search to answer in 200 ms; it takes 900 ms today. Nadim measures where the time goes.",
  "Nadim found that 700 ms go into counting the results. They tried to cache the counts; prices went stale.",
  "The cache was taken out again. Zoe prefers an estimate: nobody needs to know that there are 10,311 results.",
  "The estimate is live: 240 ms. An index on (category, price) was built at night, without locking the table.",
  "Search answers in 170 ms. Open: the admin pages still count exactly, and Nadim will look at them in April.",
];

const client = new pg.Client({ connectionString: process.env.DATABASE_URL, application_name: "node_sql" });
await client.connect();
try {
  await client.query("begin");
  for (const [number, content] of snapshots.entries()) {
    const day = new Date(Date.UTC(2026, 2, 1 + number, 9));
    await client.query("select mneme.write_l1_snapshot($1, $2, $3, $4, $5, $6)", [
      sessionId, number * 20 + 1, number * 20 + 20, content, day, new Date(day.getTime() + 3_600_000),
    ]);
  }
  await client.query("commit");
  console.log(`written: ${snapshots.length} snapshots`);

  for (let folded = false; !folded; await sleep(500)) {
    const nodes = "select 1 from mneme.active_summary_nodes where session_id = $1 and level > 1";
    folded = (await client.query(nodes, [sessionId])).rowCount > 0;
  }
  const { rows } = await client.query("select mneme.memory($1, $2) as memory", [sessionId, 100_000]);
  console.log(rows[0].memory);
} finally {
  await client.end();
}
