"""The sweep's view of the rows: what nobody has looked at yet, and what is due and held by nothing.

Everything is bounded, oldest first, and may run twice at once. Its cost grows with what is new: a node is marked once
its session is not due, is paused, or is held by a run that will itself look again.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row

from models import sql
from models.breaker import Server
from models.holds import read_holds
from models.runs import count_sessions
from models.settings import NO_CAPS, MnemeSettings, ScheduleSettings, SpendSettings

POSTPONE_SECONDS = 300.0
"""After so long a session is looked at again that has spent what it may."""


@dataclass(frozen=True)
class Taken:
    """A session that this sweep, and no other, is to enqueue; ``retry`` when a run of it was to be tried again by now."""

    session_id: str
    taken_at: datetime
    retry: bool = False


@dataclass(frozen=True)
class Swept:
    """What one round found: the sessions to enqueue, how many nodes it marked, and whether there may be more."""

    taken: list[Taken]
    marked: int
    more: bool


def expire_leases(connection: Connection, most: int) -> int:
    """Close runs whose lease has passed, oldest first; return how many."""
    return connection.execute(sql.EXPIRE_MANY, {"most": most}).rowcount


def note_sweep(connection: Connection, worker: str) -> None:
    """Note that a worker sweeps: its message came from beat through the broker, so all three are alive."""
    connection.execute(sql.NOTE_SWEEP, {"worker": worker})


def note_rescued(connection: Connection, sessions: int) -> None:
    """Count sessions that were enqueued and of which no message had told."""
    connection.execute(sql.NOTE_RESCUED, {"sessions": sessions})


def unmark_if_time(connection: Connection, mneme: MnemeSettings, schedules: ScheduleSettings) -> int | None:
    """Count everything, at most once an hour and after a change of thresholds; make what is due findable again.

    Returns:
        How many sessions and levels were made findable, or None when it was not time.
    """
    levels = {"threshold": mneme.l2_snapshot_threshold, "max_level": mneme.max_level}
    mine = connection.execute(sql.TAKE_FULL_COUNT, levels | {"full_count_seconds": schedules.full_count_seconds})
    if mine.scalar_one_or_none() is None:
        return None
    connection.execute(sql.FORGET_BREAKERS)
    return connection.execute(sql.UNMARK_DUE, levels).rowcount


def sweep_once(
    connection: Connection,
    mneme: MnemeSettings,
    schedules: ScheduleSettings,
    server: Server,
    *,
    room: int,
    spend: SpendSettings = NO_CAPS,
) -> Swept:
    """Look at the oldest nodes that no sweep has seen, and at the runs that were to be tried again by now.

    Args:
        connection: in a transaction of its own.
        mneme: thresholds.
        schedules: bounds.
        server: whom the workers ask; while its breaker is open nothing is enqueued, then one session to try.
        room: at most so many sessions are taken.
        spend: the caps.
    """
    bounds = {
        "most": schedules.sweep_batch,
        "grace_seconds": schedules.grace_seconds,
        "requeue_seconds": schedules.requeue_seconds,
    }
    nodes = connection.execute(sql.UNSWEPT, bounds).all()
    retries = connection.execute(sql.RETRIES_DUE, bounds).all()
    pausing = {row.session_id for row in nodes if row.paused}
    waiting = [sid for sid in dict.fromkeys(row.session_id for row in (*retries, *nodes)) if sid not in pausing]
    paused = set(connection.execute(sql.STILL_PAUSED, {"session_ids": sorted(pausing)}).scalars())

    counts = count_sessions(connection, waiting, mneme, enough=mneme.l2_snapshot_threshold)
    due = {counted.session_id: counted.level for counted in counts if counted.due}
    ending, running = _runs(connection, list(due))
    retried = {(row.session_id, row.level) for row in connection.execute(sql.TO_BE_RETRIED, {"session_ids": list(due)})}

    holds = read_holds(connection, due, server, spend)
    postponed = _postpone(connection, holds)

    # A session whose run is ending just now is neither marked nor enqueued: the next sweep will know.
    settled = {sid for sid in waiting if sid not in due or (sid, due[sid]) in running | retried} | postponed
    seen = [row.id for row in nodes if row.session_id in settled | paused]
    marked = connection.execute(sql.MARK_SWEPT, {"node_ids": seen}).rowcount
    # A retry is over when its session is not due, or is due at another level and something there will look again.
    over = [
        row.id
        for row in retries
        if row.session_id in settled and (row.session_id not in due or due[row.session_id] != row.level)
    ]
    connection.execute(sql.FORGET_RETRIES, {"run_ids": over})

    free, probing = _free(due, holds, running | ending)
    free = free[:room]
    rows = connection.execute(sql.TAKE_SESSIONS, {"session_ids": free, "requeue_seconds": schedules.requeue_seconds})
    at = {row.id: row.enqueued_at for row in rows}
    again = {row.session_id for row in retries}
    taken = [Taken(sid, at[sid], retry=sid in again) for sid in free if sid in at]
    full = len(nodes) == schedules.sweep_batch or len(retries) == schedules.sweep_batch
    return Swept(taken, marked, more=full and not probing)


def _postpone(connection: Connection, holds: dict[str, Row[tuple[object, ...]]]) -> set[str]:
    """Have the sessions that reached a cap of their own looked at again later; return them."""
    run_ids = [row.run_id for row in holds.values() if row.capped_alone and row.run_id is not None]
    found = connection.execute(sql.POSTPONE, {"run_ids": run_ids, "seconds": POSTPONE_SECONDS})
    return set(found.scalars())


def _free(
    due: dict[str, int], holds: dict[str, Row[tuple[object, ...]]], held: set[tuple[str, int]]
) -> tuple[list[str], bool]:
    """Return the due sessions that nothing holds, in the order given; one alone while the breaker lets one call through.

    And whether it does: then this sweep has no further round.
    """
    free = [sid for sid, level in due.items() if (sid, level) not in held and holds[sid].hold is None]
    probing = any(holds[sid].probing for sid in free)
    return (free[:1] if probing else free), probing


def _runs(connection: Connection, session_ids: list[str]) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Return the runs that are ending just now, and those that are running and will count after us."""
    every = {(row.session_id, row.level) for row in connection.execute(sql.RUNNING, {"session_ids": session_ids})}
    locked = {
        (row.session_id, row.level) for row in connection.execute(sql.RUNNING_LOCKED, {"session_ids": session_ids})
    }
    return every - locked, locked


def give_back(connection: Connection, taken: Taken) -> None:
    """Note that a session could not be published after all, so that the next sweep may try."""
    connection.execute(sql.GIVE_BACK_SESSION, {"session_id": taken.session_id, "taken_at": taken.taken_at})
