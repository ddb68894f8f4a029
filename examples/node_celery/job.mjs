// The message that mneme's worker takes, as Celery would have written it, pushed onto the list that is its queue.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";

const QUEUE = "mneme";

export function job(sessionId) {
  const id = randomUUID();
  const body = JSON.stringify([[], { session_id: sessionId }, null]); // args, kwargs, no callbacks
  return JSON.stringify({
    body: Buffer.from(body).toString("base64"),
    "content-type": "application/json",
    "content-encoding": "utf-8",
    headers: { task: "mneme.job", id },
    properties: {
      body_encoding: "base64",
      delivery_tag: randomUUID(), // must be unique: the broker keeps unacknowledged messages by it
      delivery_info: { exchange: "", routing_key: QUEUE },
      delivery_mode: 2,
      priority: 0,
      correlation_id: id,
    },
  });
}

// Call it after the commit. It gives up after two seconds: a lost job costs time only, the worker's sweep makes up for it.
export async function enqueue(redisUrl, sessionId) {
  const socket = { connectTimeout: 2000, reconnectStrategy: false };
  const path = redisUrl.startsWith("redis+socket://") && decodeURIComponent(redisUrl.slice("redis+socket://".length));
  const client = createClient(path ? { socket: { ...socket, path } } : { url: redisUrl, socket });
  client.on("error", () => {}); // told by the promise below
  const pushed = client.connect().then(() => client.lPush(QUEUE, job(sessionId)));
  const late = new AbortController();
  const tooLate = sleep(2000, undefined, { signal: late.signal }).then(() => Promise.reject(new Error("timeout")));
  try {
    await Promise.race([pushed, tooLate]);
    return true;
  } catch (error) {
    console.warn(`not enqueued (${error.code ?? error.message}); mneme's sweep will find the session`);
    return false;
  } finally {
    pushed.catch(() => {});
    tooLate.catch(() => {});
    late.abort();
    if (client.isOpen) client.destroy();
  }
}
