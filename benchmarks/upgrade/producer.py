"""A main app of whichever release it is run in: ``producer.py NAME client|sql SESSIONS EVERY_SECONDS STOP_FILE``.

It imports nothing of ours but ``mneme_client``, writes snapshot after snapshot until the stop file is there, and prints one
JSON object for each that is committed. Nothing is tried again: a write that fails during an upgrade is what we look for.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from celery import Celery
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

Write = Callable[[str, int, str], str]

_SAID = (
    "the agent chose Postgres 表 решение café 決定 after 17 builds and €120 — Zoë said: «not yet» 🧪 /srv/app.py deploy"
)
_CALL = "select mneme.write_l1_snapshot(%s, %s, %s, %s)"
_MESSAGE = "insert into mneme.messages (session_id, seq, role) values (%s, %s, 'user') on conflict do nothing"


@contextmanager
def by_client() -> Iterator[Write]:
    """Write through this release's ``mneme_client`` on a SQLAlchemy session; it enqueues after the commit."""
    import mneme_client

    print(json.dumps({"code": mneme_client.__file__}), flush=True)
    mneme_client.configure(broker_url=os.environ["REDIS_URL"])
    engine = create_engine(os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+psycopg:"))

    def write(session_id: str, number: int, content: str) -> str:
        with Session(engine) as session, session.begin():
            return str(mneme_client.write_snapshot(session, session_id, number * 10 + 1, number * 10 + 10, content))

    yield write
    engine.dispose()


@contextmanager
def by_sql() -> Iterator[Write]:
    """Write in plain SQL, the last message of the span too, and send the session's id from a Celery app of its own."""
    app = Celery("app", broker=os.environ["REDIS_URL"])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:

        def write(session_id: str, number: int, content: str) -> str:
            with connection.transaction():
                row = connection.execute(_CALL, [session_id, number * 10 + 1, number * 10 + 10, content]).fetchone()
                connection.execute(_MESSAGE, [session_id, number * 10 + 10])
            app.send_task("mneme.job", kwargs={"session_id": session_id}, queue="mneme")
            return str(row and row[0])

        yield write


def main(name: str, how: str, sessions: int, every_seconds: float, stop: Path) -> None:
    """Write until told to stop; each eighth write repeats one, which must give the same id."""
    chance = random.Random(name)
    ids: dict[tuple[str, int], tuple[str, str]] = {}
    with (by_client if how == "client" else by_sql)() as write:
        position, began = 0, time.monotonic()
        while not stop.exists():
            session_id, number = f"{name}-{position % sessions}", position // sessions
            content = f"Snapshot {number} of {session_id}: " + " ".join(chance.choices(_SAID.split(), k=60))
            if again := position % 8 == 7:
                (session_id, number), (content, _) = chance.choice(list(ids.items()))
            told: dict[str, object] = {"session_id": session_id, "number": number, "content": content}
            at = time.monotonic()
            try:
                node = write(session_id, number, content)
                told |= {"took": time.monotonic() - at, "again": again}
                if again and ids[session_id, number][1] != node:
                    told["error"] = "the same snapshot has another id"
                ids[session_id, number] = content, node
            except Exception as error:  # noqa: BLE001 - told, whatever it is
                told["error"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            print(json.dumps(told), flush=True)
            position += 1
            time.sleep(max(0.0, began + position * every_seconds - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
