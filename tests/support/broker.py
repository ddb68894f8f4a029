"""What lies in the broker, and a broker that does not answer."""

import base64
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.support.processes import Process, process, wait_until
from tests.support.servers import free_port, redis_program


def messages(broker: redis.Redis, expected: int) -> list[dict[str, Any]]:
    """Wait for so many messages, and a little longer for one too many."""
    wait_until(lambda: broker.llen("mneme") >= expected, what=f"{expected} messages")
    time.sleep(0.3)
    return [json.loads(message) for message in broker.lrange("mneme", 0, -1)]  # type: ignore[union-attr]


def body(message: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(message["body"]))


def enqueued(broker: redis.Redis, expected: int) -> list[str]:
    """Return the sessions that the messages name."""
    return sorted(body(message)[1]["session_id"] for message in messages(broker, expected))


@dataclass
class OwnRedis:
    """A Redis that a test may freeze without harm to the others."""

    url: str
    server: Process

    def freeze(self) -> None:
        self.server.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.server.send(signal.SIGCONT)


@contextmanager
def own_redis(log: Path, password: str | None = None) -> Iterator[OwnRedis]:
    port = free_port()
    command = [
        redis_program(),
        "--port",
        str(port),
        "--save",
        "",
        "--dir",
        str(log.parent),
        *(["--requirepass", password] if password else []),
    ]
    with process(command, {}, log) as server:
        wait_until(lambda: _answers(port, password))
        yield OwnRedis(f"redis://{f':{password}@' if password else ''}127.0.0.1:{port}/0", server)


def _answers(port: int, password: str | None) -> bool:
    client = redis.Redis(port=port, password=password)
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
    finally:
        client.close()
