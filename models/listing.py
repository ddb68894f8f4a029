"""Lists for those who look after the service: sessions by how much attention they need, and runs, newest first."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from models import listing_sql as sql
from models.breaker import Server
from models.settings import MnemeSettings, SpendSettings


@dataclass(frozen=True, kw_only=True)
class ListedSession:
    """A session.

    ``state`` is *due*, what holds it (*already_running*, *backing_off*, *paused*, *held*), or *settled* when too few wait;
    ``waiting`` is how many do and ``due_seconds`` for how long enough of them have; ``attempt`` and the error are those of the
    newest run, if that failed; ``given_up`` counts nodes that were dismissed by a failure, ``degraded`` extracts in place of an
    answer; ``written_at`` is when the newest node was written.
    """

    session_id: str
    state: str
    paused: bool
    waiting: int
    due_seconds: float | None
    attempt: int | None
    error_kind: str | None
    error: str | None
    given_up: int
    degraded: int
    written_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run, named like its columns; ``nodes`` is how many it was to fold, ``retry_seconds`` when it is to be tried again."""

    id: UUID
    session_id: str
    level: int
    state: str
    attempt: int
    repairs: UUID | None
    nodes: int
    node_id: UUID | None
    model: str | None
    llm_calls: int
    prompt_tokens: int
    completion_tokens: int
    error_kind: str | None
    error: str | None
    worker: str | None
    started_at: datetime
    finished_at: datetime | None
    seconds: float
    retry_seconds: float | None


def list_sessions(
    connection: Connection, settings: MnemeSettings, server: Server, spend: SpendSettings, most: int
) -> list[ListedSession]:
    """Return at most so many sessions, those that need attention first, then the newest."""
    which = {"threshold": settings.l2_snapshot_threshold, "max_level": settings.max_level, "most": most}
    rows = connection.execute(sql.SESSIONS, which | server.key | spend.caps)
    return [ListedSession(**row._mapping) for row in rows]


def list_runs(connection: Connection, session_id: str | None, most: int) -> list[ListedRun]:
    """Return at most so many runs, of a session or of all, the newest first and those under way before them."""
    statement = sql.RUNS if session_id is None else sql.RUNS_OF_SESSION
    which = {"most": most} if session_id is None else {"most": most, "session_id": session_id}
    return [ListedRun(**row._mapping) for row in connection.execute(statement, which)]


def due_sessions(connection: Connection, settings: MnemeSettings) -> list[str]:
    """Return every session with enough to fold, held or not, the one that became due first, first."""
    which = {"threshold": settings.l2_snapshot_threshold, "max_level": settings.max_level}
    return list(connection.execute(sql.DUE_SESSIONS, which).scalars())
