"""Claiming: at most one run of a session and level, and the batch that it folds.

The order of the statements is the design (see docs/jobs.md): expire, insert, and only then read. A single statement that
counts and claims would see, after waiting for an expired holder's commit, the nodes as they were before it.
"""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy import Connection, Engine, Row
from sqlalchemy.exc import OperationalError

from models import sql
from models.breaker import Server, take_probe
from models.engine import in_transaction
from models.nodes import SummaryNode, node_from_row
from models.runs import Claim, Count, count, count_again, dismiss, node_ids
from models.settings import NO_CAPS, MnemeSettings, SpendSettings

HALVE_FROM_CRASHES = 2
_LOCK_NOT_AVAILABLE = "55P03"


@dataclass(frozen=True)
class InputBudget:
    """How many tokens a batch may have, and how many each node costs beyond its own text."""

    tokens: int
    tokens_per_node: int

    def cost(self, node: SummaryNode) -> int:
        """Return the tokens that a node takes of the budget."""
        return (node.token_count or 0) + self.tokens_per_node


@dataclass(frozen=True)
class Skip:
    """Why nothing was claimed."""

    outcome: Literal["below_threshold", "already_running", "backing_off", "paused", "held"]
    level: int
    uncovered: int


@dataclass(frozen=True)
class Reviewed:
    """A run that asked no model: it dismissed nodes that cannot be folded, and is closed."""

    run_id: UUID
    level: int
    uncovered: int
    reason: Literal["crashes", "too_large"]
    dismissed: int
    after: Count


class _OtherLevel(Exception):
    """Rolls the claim back: another level is the lowest that is due now."""

    def __init__(self, now: Count) -> None:
        super().__init__(now.level)
        self.now = now


class _NotClaimed(Exception):
    """Rolls the claim back: what is not due after all leaves no trace."""

    def __init__(self, skip: Skip) -> None:
        super().__init__(skip.outcome)
        self.skip = skip


def claim(
    engine: Engine,
    counted: Count,
    settings: MnemeSettings,
    budget: InputBudget,
    *,
    worker: str,
    server: Server,
    spend: SpendSettings = NO_CAPS,
) -> Claim | Reviewed | Skip:
    """Begin a run for what was counted, in one short transaction.

    Args:
        engine: where.
        counted: the session and the level to be made.
        settings: threshold, batch size, lease, limits.
        budget: what the model takes.
        worker: who is asking, as the run's row will say.
        server: which model of which server will be asked.
        spend: the caps.

    Raises:
        StorageError: the database is out of reach or refused.
    """
    try:
        return in_transaction(
            engine, lambda connection: _claim(connection, counted, settings, budget, worker, server, spend)
        )
    except _NotClaimed as error:
        return error.skip
    except _OtherLevel as error:
        # A lower level has become due since it was counted, and that goes first.
        return claim(engine, error.now, settings, budget, worker=worker, server=server, spend=spend)


def _claim(
    connection: Connection,
    counted: Count,
    settings: MnemeSettings,
    budget: InputBudget,
    worker: str,
    server: Server,
    spend: SpendSettings,
) -> Claim | Reviewed:
    session_id, level = counted.session_id, counted.level
    run_id = _insert_run(connection, counted, settings, worker, server)
    which = {"session_id": session_id, "level": level, "run_id": run_id}
    holds = connection.execute(sql.READ_HOLDS, which | server.key | spend.caps).one()
    now = count(connection, session_id, settings)
    if holds.hold is not None:
        raise _NotClaimed(Skip(holds.hold, level, counted.uncovered))
    if not now.due:
        raise _NotClaimed(Skip("below_threshold", now.level, now.uncovered))
    if now.level != level:
        raise _OtherLevel(now)

    if (holds.crashes or 0) >= settings.max_crashes:
        return _review(connection, run_id, now, holds, list(holds.input_ids), "crashes", settings)
    batch, too_large = _choose(connection, now, holds, settings, budget)
    if too_large:
        return _review(connection, run_id, now, holds, node_ids(too_large), "too_large", settings)
    if holds.probing and not take_probe(connection, server, run_id):
        raise _NotClaimed(Skip("held", level, counted.uncovered))
    attempt, content_failures = _begin(connection, run_id, now, holds, node_ids(batch), settings)
    return Claim(run_id, session_id, level, attempt, tuple(batch), counted.uncovered, server, content_failures)


def _insert_run(connection: Connection, counted: Count, settings: MnemeSettings, worker: str, server: Server) -> UUID:
    """Expire a dead run, and insert ours unless there is a living one."""
    who = {"session_id": counted.session_id, "level": counted.level}
    run = who | server.key | {"lease_seconds": settings.lease_seconds, "worker": worker}
    running = _NotClaimed(Skip("already_running", counted.level, counted.uncovered))
    try:
        connection.execute(sql.EXPIRE_ONE, who)
        run_id = connection.execute(sql.INSERT_RUN, run).scalar_one_or_none()
    except OperationalError as error:
        # A holder in the middle of its commit kept us waiting for the whole lock timeout.
        if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            raise running from None
        raise
    if run_id is None:
        raise running
    inserted: UUID = run_id
    return inserted


def _choose(
    connection: Connection, now: Count, holds: Row[tuple[object, ...]], settings: MnemeSettings, budget: InputBudget
) -> tuple[list[SummaryNode], list[SummaryNode]]:
    """Return the batch in order of span, and the nodes that no batch can hold."""
    too_long = holds.state == "failed" and holds.error_kind == "too_long"
    if (holds.crashes or 0) >= HALVE_FROM_CRASHES or (holds.content_failures or 0) > 0 or too_long:
        # What failed, was too long, or killed its worker last time: the first half of it.
        failed = connection.execute(sql.STILL_UNCOVERED, {"node_ids": list(holds.input_ids)})
        candidates = [node_from_row(row) for row in failed]
        if len(candidates) >= 2:
            return _fitting(candidates[: max(2, len(candidates) // 2)], budget)
    rows = connection.execute(
        sql.OLDEST_UNCOVERED,
        {"session_id": now.session_id, "level": now.level - 1, "most": settings.l2_max_snapshots},
    )
    batch, too_large = _fitting([node_from_row(row) for row in rows], budget)
    if too_large:
        return [], too_large
    return _with_riders(connection, now, batch, settings, budget), []


def _fitting(candidates: list[SummaryNode], budget: InputBudget) -> tuple[list[SummaryNode], list[SummaryNode]]:
    """Return as many of the oldest as fit, whole, and those that alone exceed the budget."""
    too_large = [node for node in candidates if budget.cost(node) > budget.tokens]
    room = budget.tokens
    batch = []
    for node in candidates:
        room -= budget.cost(node)
        if room < 0:
            break
        batch.append(node)
    return batch, too_large


def _with_riders(
    connection: Connection, now: Count, batch: list[SummaryNode], settings: MnemeSettings, budget: InputBudget
) -> list[SummaryNode]:
    """Take declined nodes along that lie before or within the batch: as at most half of what is folded, if they fit."""
    rows = connection.execute(
        sql.DECLINED_BEFORE,
        {
            "session_id": now.session_id,
            "level": now.level - 1,
            "span_start": batch[-1].span_start,
            "most": max(0, min(len(batch), settings.l2_max_snapshots - len(batch))),
        },
    )
    room = budget.tokens - sum(budget.cost(node) for node in batch)
    riders = []
    for node in (node_from_row(row) for row in rows):
        if budget.cost(node) <= room:
            riders.append(node)
            room -= budget.cost(node)
    return sorted(batch + riders, key=lambda node: (node.span_start, node.span_end, node.id or UUID(int=0)))


def _begin(
    connection: Connection,
    run_id: UUID,
    now: Count,
    holds: Row[tuple[object, ...]],
    input_ids: list[UUID],
    settings: MnemeSettings,
) -> tuple[int, int]:
    """Carry the counters over from the run before, raise the attempt, store the inputs.

    Returns:
        The attempt, and how many runs in a row had no usable answer.
    """
    fresh = holds.state in (None, "succeeded", "declined")
    uncounted = holds.state in ("released", "cancelled")
    attempt: int = 1 if fresh else holds.attempt + (0 if uncounted else 1)
    content_failures: int = 0 if fresh else holds.content_failures
    connection.execute(
        sql.BEGIN_RUN,
        {
            "run_id": run_id,
            "previous_id": holds.previous_id,
            "attempt": attempt,
            "content_failures": content_failures,
            "crashes": 0 if fresh else holds.crashes,
            "input_ids": input_ids,
            "lease_seconds": settings.lease_seconds,
        },
    )
    before = {"session_id": now.session_id, "level": now.level, "run_id": run_id, "previous_id": holds.previous_id}
    connection.execute(sql.FORGET_RETRIES_BEFORE, before)
    return attempt, content_failures


def _review(
    connection: Connection,
    run_id: UUID,
    now: Count,
    holds: Row[tuple[object, ...]],
    dismissed: list[UUID],
    reason: Literal["crashes", "too_large"],
    settings: MnemeSettings,
) -> Reviewed:
    """Dismiss what cannot be folded, within the claim: the run is closed, and its session counted again by the job."""
    _begin(connection, run_id, now, holds, dismissed, settings)
    dismiss(connection, run_id, dismissed, reason)
    after = count_again(connection, now.session_id, run_id, settings)
    return Reviewed(run_id, now.level, now.uncovered, reason, len(dismissed), after)
