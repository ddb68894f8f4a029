"""The run protocol: counting, claiming, and the ways in which a run ends. Each function is one transaction's work.

The lease and the fencing token are those of Martin Kleppmann, "How to do distributed locking" (2016): a holder may be
arbitrarily late, so what it writes is checked against the token, here the id of its run, in the same transaction.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

from sqlalchemy import Connection

from models import sql
from models.breaker import Server
from models.errors import FoldFailed
from models.nodes import SummaryNode
from models.settings import MnemeSettings
from models.text import clean_text
from models.writing import write_node

MOST_TOKENS = 10**12
MOST_ERROR_CHARACTERS = 1000

Ending = Literal["succeeded", "declined", "failed", "released"]


class LostLease(Exception):
    """The run is no longer ours, or an input was taken: the transaction must be rolled back. Never leaves a job."""


@dataclass(frozen=True)
class Count:
    """What is waiting in a session: the level that would be made, how many nodes wait below it, and whether it is due."""

    session_id: str
    level: int
    uncovered: int
    due: bool


@dataclass(frozen=True)
class Claim:
    """A begun run: its id is the fencing token, its batch what the model is asked about."""

    run_id: UUID
    session_id: str
    level: int
    attempt: int
    batch: tuple[SummaryNode, ...]
    uncovered: int
    server: Server
    content_failures: int = 0
    begun_at: float = field(default_factory=time.monotonic, compare=False)

    @property
    def input_ids(self) -> list[UUID]:
        """The ids of the batch, in the order of the batch."""
        return node_ids(self.batch)


@dataclass(frozen=True)
class Usage:
    """What a run cost so far."""

    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def plus(self, prompt_tokens: int, completion_tokens: int) -> "Usage":
        """Return the usage with what one answer says it took; a server may say anything, so within what can be kept."""
        spent = (self.prompt_tokens + max(0, prompt_tokens), self.completion_tokens + max(0, completion_tokens))
        prompt, completion = (min(tokens, MOST_TOKENS) for tokens in spent)
        return replace(self, prompt_tokens=prompt, completion_tokens=completion)


@dataclass(frozen=True)
class Fold:
    """What a run made, to be written as a node; ``fidelity`` is JSON, see ``tasks.grounding``."""

    content: str = field(repr=False)
    model: str
    prompt_version: str
    compaction_level: int = 1
    degraded: bool = False
    fidelity: str | None = None


def node_ids(nodes: Iterable[SummaryNode]) -> list[UUID]:
    """Return the ids of nodes that were read from the database."""
    return [node.id for node in nodes if node.id is not None]


def count_sessions(
    connection: Connection, session_ids: Sequence[str], settings: MnemeSettings, *, enough: int | None = None
) -> list[Count]:
    """Count what is waiting in each session, for the lowest level that is due, else for level 2.

    The cost does not grow with history: a count stops at ``enough`` (default: one more than a batch).
    """
    rows = connection.execute(
        sql.COUNT,
        {
            "session_ids": list(session_ids),
            "threshold": settings.l2_snapshot_threshold,
            "max_level": settings.max_level,
            "enough": enough if enough is not None else settings.l2_max_snapshots + 1,
        },
    )
    counts: dict[str, Count] = {}
    for row in rows:
        counts.setdefault(row.session_id, Count(row.session_id, row.level, row.uncovered, row.due))
    return list(counts.values())


def count(connection: Connection, session_id: str, settings: MnemeSettings) -> Count:
    """Count what is waiting in one session; see ``count_sessions``."""
    return count_sessions(connection, [session_id], settings)[0]


def shrink(connection: Connection, claim: Claim, batch: tuple[SummaryNode, ...]) -> None:
    """Note that a run goes on with fewer inputs.

    Raises:
        LostLease: the run is no longer running.
    """
    changed = connection.execute(sql.SHRINK_RUN, {"run_id": claim.run_id, "input_ids": node_ids(batch)})
    if changed.rowcount != 1:
        raise LostLease


def commit_fold(
    connection: Connection, claim: Claim, fold: Fold, usage: Usage, *, instead_of: FoldFailed | None = None
) -> UUID:
    """Write the node, its edges and the supersession flags, and close the run. All or, on any exception, nothing.

    ``instead_of`` is why the run wrote an extract in place of a model's answer; it is kept with the run.

    Returns:
        The id of the new node.

    Raises:
        LostLease: the run is not running any more, or an input is not there to be covered.
    """
    _lock(connection, claim)
    node_id = write_fold(connection, claim, fold)
    covered = connection.execute(sql.SUPERSEDE_BATCH, {"node_id": node_id, "node_ids": claim.input_ids})
    if covered.rowcount != len(claim.batch):
        raise LostLease
    why = (None, None) if instead_of is None else (instead_of.kind, str(instead_of))
    close(connection, claim.run_id, "succeeded", usage, node_id=node_id, error_kind=why[0], error=why[1])
    return node_id


def write_fold(connection: Connection, claim: Claim, fold: Fold) -> UUID:
    """Write the node that a run made of its batch; nothing is superseded yet. Return its id."""
    node_id = write_node(
        connection,
        SummaryNode(
            session_id=claim.session_id,
            level=claim.level,
            span_start=min(node.span_start for node in claim.batch),
            span_end=max(node.span_end for node in claim.batch),
            content=fold.content,
            parent_node_ids=tuple(claim.input_ids),
            compaction_level=fold.compaction_level,
            model=fold.model,
            prompt_version=fold.prompt_version,
            run_id=claim.run_id,
            degraded=fold.degraded,
        ),
    )
    connection.execute(sql.SET_FIDELITY, {"node_id": node_id, "fidelity": fold.fidelity})
    return node_id


def close_declined(connection: Connection, claim: Claim, usage: Usage) -> None:
    """Record that the model saw nothing to fold: the inputs stay active and are not offered again by themselves.

    Raises:
        LostLease: the run is not running any more.
    """
    _lock(connection, claim)
    dismiss(connection, claim.run_id, claim.input_ids, "declined", usage)


def close_given_up(connection: Connection, claim: Claim, usage: Usage, *, error: str) -> None:
    """Dismiss the inputs because no answer about them was usable.

    Raises:
        LostLease: the run is not running any more.
    """
    _lock(connection, claim)
    dismiss(connection, claim.run_id, claim.input_ids, "content", usage, error=error)


def dismiss(
    connection: Connection,
    run_id: UUID,
    input_ids: list[UUID],
    reason: str,
    usage: Usage | None = None,
    *,
    error: str | None = None,
) -> None:
    """Dismiss the inputs for a reason and close the run as declined, which resets its counters."""
    connection.execute(sql.LOCK_BATCH, {"node_ids": input_ids})
    connection.execute(sql.DISMISS, {"node_ids": input_ids, "reason": reason})
    error_kind = None if reason == "declined" else reason
    close(connection, run_id, "declined", usage or Usage(), error_kind=error_kind, error=error)


def close_failed(
    connection: Connection, claim: Claim, usage: Usage, *, kind: str, error: str, retry_seconds: float
) -> None:
    """Record a failed attempt and when to try again; the inputs are left as they are.

    Raises:
        LostLease: the run is not running any more.
    """
    lock_run(connection, claim)
    close(connection, claim.run_id, "failed", usage, error_kind=kind, error=error, retry_seconds=retry_seconds)


def close_released(connection: Connection, run_id: UUID, usage: Usage) -> bool:
    """Give up a run without counting it as an attempt; say whether it was still running."""
    return close(connection, run_id, "released", usage)


def note_usage(connection: Connection, run_id: UUID, usage: Usage) -> None:
    """Note what a run cost that somebody else has closed."""
    spent = {"llm_calls": usage.llm_calls, "prompt_tokens": usage.prompt_tokens}
    connection.execute(sql.NOTE_USAGE, spent | {"run_id": run_id, "completion_tokens": usage.completion_tokens})


def count_again(connection: Connection, session_id: str, run_id: UUID, settings: MnemeSettings) -> Count:
    """Count again at the end of a run, in the transaction that closed it; what is still due is left where the sweep looks.

    The run's row is locked by then. A sweep that saw the run still running, and therefore leaves the session's nodes to
    it, held the row before us: those nodes are counted here.
    """
    after = count(connection, session_id, settings)
    if after.due:
        connection.execute(sql.RETRY_NOW, {"run_id": run_id})
    return after


def read_run(connection: Connection, run_id: UUID) -> tuple[str, UUID | None]:
    """Return a run's state and node: after an error at commit, what it says is what happened."""
    row = connection.execute(sql.READ_RUN, {"run_id": run_id}).one()
    return row.state, row.node_id


def release_worker(connection: Connection, worker: str) -> int:
    """Release every running run of a worker that is being shut down; return how many there were."""
    return connection.execute(sql.RELEASE_WORKER, {"worker": worker}).rowcount


def lock_run(connection: Connection, claim: Claim) -> None:
    """Lock the run's row, which every ending does first.

    Raises:
        LostLease: it is not running any more.
    """
    state = connection.execute(sql.LOCK_RUN, {"run_id": claim.run_id}).scalar_one_or_none()
    if state != "running":
        raise LostLease


def _lock(connection: Connection, claim: Claim) -> None:
    """Lock the run, then its inputs by id: the one order in which every ending locks."""
    lock_run(connection, claim)
    there = connection.execute(sql.LOCK_BATCH, {"node_ids": claim.input_ids}).all()
    if len(there) != len(claim.batch):
        raise LostLease


def close(
    connection: Connection,
    run_id: UUID,
    state: Ending,
    usage: Usage,
    *,
    node_id: UUID | None = None,
    error_kind: str | None = None,
    error: str | None = None,
    retry_seconds: float | None = None,
) -> bool:
    """Close a running run, whatever it was for; say whether it was still running."""
    closed = connection.execute(
        sql.CLOSE_RUN,
        {
            "run_id": run_id,
            "state": state,
            "reset": state in ("succeeded", "declined"),
            "llm_calls": usage.llm_calls,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "node_id": node_id,
            "error_kind": error_kind,
            "error": None if error is None else clean_text(error)[:MOST_ERROR_CHARACTERS],
            "retry_seconds": retry_seconds,
        },
    )
    return closed.rowcount == 1
