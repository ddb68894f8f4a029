"""Redoing a fold whose extract stands in place of a model's answer: by the same protocol as a fold, with a run of its own.

The run is a row like any other, and the one running run of its session and level, so a repair and a fold never meet. It is no
state of the level, though: it carries no counters, and failing it makes nothing wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy import Connection

from models import repair_sql as sql
from models import sql as fold_sql
from models.breaker import Server, take_probe
from models.nodes import node_from_row
from models.runs import Claim, Fold, LostLease, Usage, close, lock_run, node_ids, write_fold
from models.settings import NO_CAPS, SpendSettings


@dataclass(frozen=True)
class Degraded:
    """An extract to be redone."""

    id: UUID
    session_id: str


NotNow = Literal["busy", "gone", "paused", "held"]


class NotClaimed(Exception):
    """Rolls the claim back: *busy* with a fold, *gone* (redone or undone meanwhile), *paused*, or *held* by the breaker."""

    def __init__(self, why: NotNow) -> None:
        super().__init__(why)
        self.why = why


def to_redo(
    connection: Connection, session_id: str | None = None, *, every: bool, but: Sequence[UUID] = (), most: int = 1
) -> list[Degraded]:
    """Return the oldest extracts to be redone, of a session or of all.

    Args:
        connection: where.
        session_id: of this session alone.
        every: also those that were tried a short time ago.
        but: leave these out.
        most: at most so many.
    """
    which = {"session_id": session_id, "every": every, "but": list(but), "most": most}
    return [Degraded(row.id, row.session_id) for row in connection.execute(sql.TO_REDO, which)]


def spent_today(connection: Connection) -> int:
    """Return how many tokens the repairs of the last 24 hours cost."""
    spent: int = connection.execute(sql.SPENT_TODAY).scalar_one()
    return spent


def claim_repair(
    connection: Connection,
    node_id: UUID,
    lease_seconds: float,
    *,
    worker: str,
    server: Server,
    spend: SpendSettings = NO_CAPS,
) -> Claim:
    """Begin a run that is to replace a node.

    Raises:
        NotClaimed: not now; the transaction must be rolled back.
    """
    about = server.key | {"node_id": node_id}
    run = connection.execute(
        sql.INSERT_REPAIR, about | {"lease_seconds": lease_seconds, "worker": worker}
    ).one_or_none()
    if run is None:
        raise NotClaimed("busy")
    now = connection.execute(sql.READ_REPAIR, about | spend.caps).one()
    batch = tuple(node_from_row(row) for row in connection.execute(sql.PARENTS, {"node_id": node_id}))
    if not now.degraded or not batch:
        raise NotClaimed("gone")
    if now.paused:
        raise NotClaimed("paused")
    if now.held or (now.probing and not take_probe(connection, server, run.id)):
        raise NotClaimed("held")
    connection.execute(fold_sql.SHRINK_RUN, {"run_id": run.id, "input_ids": node_ids(batch)})
    return Claim(run.id, run.session_id, run.level, 1, batch, 0, server)


def commit_repair(connection: Connection, claim: Claim, old_id: UUID, fold: Fold, usage: Usage) -> UUID:
    """Write the new node with its own edges, point the parents at it, retire the old one, and close the run.

    Returns:
        The id of the new node.

    Raises:
        LostLease: the run is not running any more, or the node or a parent is not as it was.
    """
    lock_run(connection, claim)
    connection.execute(fold_sql.LOCK_NODES, {"node_ids": [old_id, *claim.input_ids]})
    if not connection.execute(sql.STILL_DEGRADED, {"node_id": old_id}).scalar_one():
        raise LostLease
    node_id = write_fold(connection, claim, fold)
    which = {"node_id": old_id, "by": node_id}
    moved = connection.execute(sql.MOVE_PARENTS, which | {"node_ids": claim.input_ids})
    replaced = connection.execute(sql.REPLACE, which)
    if (moved.rowcount, replaced.rowcount) != (len(claim.batch), 1):
        raise LostLease
    close(connection, claim.run_id, "succeeded", usage, node_id=node_id)
    return node_id


def keep(connection: Connection, claim: Claim, usage: Usage) -> None:
    """Record that the model saw nothing to fold: the extract stays.

    Raises:
        LostLease: the run is not running any more.
    """
    lock_run(connection, claim)
    close(connection, claim.run_id, "declined", usage)
