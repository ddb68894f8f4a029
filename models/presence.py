"""Which workers are there: each writes its row a few times a minute, and deletes it when it ends as it should."""

from dataclasses import dataclass

from sqlalchemy import Connection

from models import presence_sql as sql

NOTE_EVERY_SECONDS = 20.0
ALIVE_SECONDS = 65.0
"""A worker that was not seen for longer is taken for gone: it missed three times."""


@dataclass(frozen=True)
class WorkerSeen:
    """A worker as it last wrote of itself; ``slots`` is how many folds it makes at once."""

    name: str
    release: str
    slots: int
    seen_seconds: float

    @property
    def alive(self) -> bool:
        """Whether it wrote lately."""
        return self.seen_seconds < ALIVE_SECONDS


def note_worker(connection: Connection, name: str, release: str, slots: int) -> None:
    """Note that a worker is there."""
    connection.execute(sql.NOTE_WORKER, {"name": name, "release": release, "slots": slots})


def forget_worker(connection: Connection, name: str) -> None:
    """Note that a worker ends as it should."""
    connection.execute(sql.FORGET_WORKER, {"name": name})


def forget_gone(connection: Connection, seconds: float) -> int:
    """Forget workers that were not seen for so long; return how many."""
    return connection.execute(sql.FORGET_GONE, {"seconds": seconds}).rowcount


def workers_seen(connection: Connection) -> tuple[WorkerSeen, ...]:
    """Return the workers, the last seen first."""
    return tuple(WorkerSeen(**row._mapping) for row in connection.execute(sql.WORKERS))
