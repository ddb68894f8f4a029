"""Steering from outside: a session, or everything, is paused and resumed; a running run is taken away from its worker.

All of it is rows, obeyed by every worker at its next claim. A fold that is running ends as if nothing had been, unless it is
cancelled: then its token is gone, and its commit writes nothing.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from models import steering_sql as sql


@dataclass(frozen=True)
class Cancelled:
    """A run that was taken away from its worker."""

    run_id: UUID
    level: int
    worker: str | None


def pause(connection: Connection, session_id: str) -> bool:
    """Let no fold of the session begin until it is resumed; say whether there is such a session."""
    return connection.execute(sql.PAUSE, {"session_id": session_id}).rowcount == 1


def resume(connection: Connection, session_id: str) -> bool | None:
    """Let the session be folded again; say whether it was paused, or None when there is no such session."""
    was_paused: bool | None = connection.execute(sql.RESUME, {"session_id": session_id}).scalar_one_or_none()
    return was_paused


def pause_all(connection: Connection) -> None:
    """Let no fold of any session begin, those that do not exist yet included, until everything is resumed."""
    connection.execute(sql.PAUSE_ALL)


def resume_all(connection: Connection) -> bool:
    """Take back ``pause_all``, and say whether everything was paused; sessions paused by themselves stay so."""
    return bool(connection.execute(sql.RESUME_ALL).scalar_one_or_none())


def paused_sessions(connection: Connection, most: int) -> list[str]:
    """Return the sessions that are paused by themselves, the longest paused first, at most so many."""
    return [row.id for row in connection.execute(sql.PAUSED_SESSIONS, {"most": most})]


def cancel(connection: Connection, session_id: str) -> list[Cancelled] | None:
    """Pause a session and take its running runs away; None when there is no such session.

    A run that is being committed just now is waited for, and then is no longer there to be cancelled.
    """
    if not pause(connection, session_id):
        return None
    return [
        Cancelled(row.id, row.level, row.worker) for row in connection.execute(sql.CANCEL, {"session_id": session_id})
    ]
