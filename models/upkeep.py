"""Upkeep: runs that nobody will ask for are forgotten, and what the doctor found is noted."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from models import upkeep_sql as sql
from models.doctor import Finding

Place = tuple[datetime | None, UUID]
BEGINNING: Place = (None, UUID(int=0))


def forget_runs(connection: Connection, seconds: float, after: Place, most: int) -> tuple[int, Place | None]:
    """Delete runs that ended long ago and made no node, but the newest of a session and level.

    Args:
        connection: in a transaction of its own.
        seconds: how long ago.
        after: where the last page ended.
        most: at most so many are looked at.

    Returns:
        How many were deleted, and where this page ended; None when there is no further one.
    """
    which = {"seconds": seconds, "after_at": after[0], "after_id": after[1], "most": most}
    rows = connection.execute(sql.OLD_RUNS, which).all()
    if not rows:
        return 0, None
    forgotten = connection.execute(sql.FORGET_RUNS, {"run_ids": [row.id for row in rows]}).rowcount
    return forgotten, (rows[-1].finished_at, rows[-1].id) if len(rows) == most else None


def take_examination(connection: Connection, seconds: float) -> bool:
    """Say whether it is time for the doctor, and take it if so: nobody else does for half of so many seconds."""
    return bool(connection.execute(sql.TAKE_EXAMINATION, {"seconds": seconds}).scalar_one_or_none())


def note_examination(connection: Connection, findings: Sequence[Finding]) -> list[str]:
    """Note what the doctor found, for the status; return the names of the broken rules."""
    broken = [finding.rule.name for finding in findings if finding.violations]
    violations = sum(finding.violations for finding in findings)
    connection.execute(sql.NOTE_EXAMINATION, {"broken_rules": broken, "violations": violations})
    return broken
