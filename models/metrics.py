"""What ended between two readings, for counters that only grow."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from models import metrics_sql as sql

LAG_SECONDS = 15.0
"""Longer than the transaction that ends a run may take: its statements wait for a lock for 2 s, and run for 10 s, at most."""


@dataclass(frozen=True)
class Ended:
    """Runs that ended in one way: ``state`` and ``kind`` are those of their rows, ``seconds`` how long each took."""

    state: str
    kind: str
    repair: bool
    runs: int
    llm_calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: Sequence[float]


def settled_until(connection: Connection, lag_seconds: float = LAG_SECONDS) -> datetime:
    """Return up to when no further run can end: a little before now, by the clock of the database."""
    until: datetime = connection.execute(sql.UNTIL, {"lag_seconds": lag_seconds}).scalar_one()
    return until


def ended_between(connection: Connection, after: datetime, until: datetime) -> list[Ended]:
    """Return what ended after the one time and not after the other."""
    return [Ended(**row._mapping) for row in connection.execute(sql.ENDED, {"after": after, "until": until})]
