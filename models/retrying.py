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
    """How many runs are due now that were to wait, and how many dismissed nodes are offered again."""

    runs: int
    nodes: int


def retry(connection: Connection, session_ids: Sequence[str], reasons: Sequence[str]) -> Retried:
    """Make the sessions due now: no ``retry_at`` lies ahead, and nodes dismissed for these reasons are offered again.

    Locks are taken in the order of every other writer: runs, nodes, sessions.

    Raises:
        DBAPIError: a row stayed locked for longer than the transaction's lock timeout.
    """
    which = {"session_ids": list(session_ids), "reasons": list(reasons)}
    runs = connection.execute(sql.RETRY_RUNS, which).rowcount
    nodes = connection.execute(sql.OFFER_AGAIN, which).rowcount
    connection.execute(sql.FORGET_ENQUEUED, which)
    return Retried(runs, nodes)


def sessions_to_retry(connection: Connection, after: str, reasons: Sequence[str]) -> list[str]:
    """Return the next sessions, in order of id, that wait for a later attempt or hold nodes dismissed for these reasons."""
    which = {"after": after, "reasons": list(reasons), "most": SESSIONS_AT_ONCE}
    return list(connection.execute(sql.TO_RETRY, which).scalars())


def probe_now(connection: Connection) -> int:
    """Let every open breaker try its server with the next call; return how many there were."""
    return connection.execute(sql.PROBE_NOW).rowcount
