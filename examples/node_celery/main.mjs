// Another language that does not wait for the sweep: write by SQL, commit, then push the job for the worker.
// Usage: DATABASE_URL=postgresql://... REDIS_URL=redis://... node main.mjs SESSION
import pg from "pg";
import { enqueue } from "./job.mjs";

const sessionId = process.argv[2];
const { DATABASE_URL, REDIS_URL } = process.env;
if (!sessionId || !DATABASE_URL || !REDIS_URL) {
  console.error("usage: DATABASE_URL=postgresql://... REDIS_URL=redis://... node main.mjs SESSION");
  process.exit(2);
}

const client = new pg.Client({ connectionString: DATABASE_URL, application_name: "node_celery" });
await client.connect();
try {
  await client.query("begin");
  for (let number = 0; number < 5; number++) {
    const content = `Day ${number + 1} of the migration: table ${number + 1} of 5 was copied, and its counts agree.`;
    await client.query("select mneme.write_l1_snapshot($1, $2, $3, $4)", [
      sessionId, number * 20 + 1, number * 20 + 20, content,
    ]);
  }
  await client.query("commit");
} finally {
  await client.end();
}
console.log((await enqueue(REDIS_URL, sessionId)) ? "enqueued" : "written");
