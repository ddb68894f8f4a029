"""Making due now what waits for a later attempt or was given up: what ``mneme retry`` does."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from models import status_sql as sql

FAILURES = ("crashes", "too_large", "content")
"""Dismissals that mean *this did not work*."""

VERDICTS = (*FAILURES, "declined")
"""And the model's own: *nothing to fold here*. Not ``restored``: somebody undid a fold there on purpose."""

SESSIONS_AT_ONCE = 500


@dataclass(frozen=True)
class Retried:
    """How many runs are due now that were to wait, how many dismissed nodes are offered again, how many sessions were busy."""

    runs: int
    nodes: int
    busy: int


def retry(connection: Connection, session_ids: Sequence[str], reasons: Sequence[str]) -> Retried:
    """Make the sessions due now: no ``retry_at`` lies ahead, and nodes dismissed for these reasons are offered again.

    They count as enqueued: publish a job for each after the commit, and tell ``not_published`` of those that were not.
    Locks are taken in the order of every other writer: runs, nodes, sessions. What somebody else has locked is passed over;
    its session is *busy*.
    """
    which = {"session_ids": list(session_ids), "reasons": list(reasons)}
    runs = connection.execute(sql.RETRY_RUNS, which).rowcount
    nodes = connection.execute(sql.OFFER_AGAIN, which).rowcount
    connection.execute(sql.NOTE_ENQUEUED, which)
    return Retried(runs, nodes, connection.execute(sql.STILL_WAITING, which).scalar_one())


def not_published(connection: Connection, session_ids: Sequence[str]) -> None:
    """Note that the broker did not take these sessions after all: the next sweep may."""
    connection.execute(sql.FORGET_ENQUEUED, {"session_ids": list(session_ids)})


def sessions_to_retry(connection: Connection, after: str) -> list[str]:
    """Return the next sessions, in order of id, that wait for a later attempt or hold nodes whose fold did not work."""
    which = {"after": after, "most": SESSIONS_AT_ONCE}
    return list(connection.execute(sql.TO_RETRY, which).scalars())


def probe_now(connection: Connection) -> int:
    """Let every open breaker try its server with the next call; return how many there were."""
    return connection.execute(sql.PROBE_NOW).rowcount
