"""One node with all that belongs to it: what it was made from, what took its place, the run that made it."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from models import sql, tree_sql
from models.nodes import SummaryNode, node_from_row

MOST_CANDIDATES = 6
"""How many ids that begin alike are named."""

_HEX_DIGITS = frozenset("0123456789abcdef")
_FEWEST_DIGITS, _DIGITS = 4, 32


@dataclass(frozen=True, kw_only=True)
class Relative:
    """A node above or below another.

    ``state`` is *active*, *superseded*, or why it was dismissed or retired; ``parent_count`` is how many it was made from.
    """

    id: UUID
    level: int
    span_start: int
    span_end: int
    token_count: int
    state: str
    parent_count: int


@dataclass(frozen=True, kw_only=True)
class MakingRun:
    """The run that made a node; ``repairs`` is the extract that it replaced, ``error`` why it wrote an extract, if it did."""

    id: UUID
    state: str
    attempt: int
    repairs: UUID | None
    llm_calls: int
    prompt_tokens: int
    completion_tokens: int
    error_kind: str | None
    error: str | None
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A node, its parents in their order, its successors from the next one up to the active one, and its run."""

    node: SummaryNode
    parents: tuple[Relative, ...]
    successors: tuple[Relative, ...]
    run: MakingRun | None


def id_range(beginning: str) -> tuple[UUID, UUID] | None:
    """Return the first and the last id that begin so, or None when nothing can: at least four hex digits, hyphens aside."""
    digits = beginning.replace("-", "").lower()
    if not _FEWEST_DIGITS <= len(digits) <= _DIGITS or not _HEX_DIGITS.issuperset(digits):
        return None
    return UUID(digits.ljust(_DIGITS, "0")), UUID(digits.ljust(_DIGITS, "f"))


def find_nodes(connection: Connection | Session, first: UUID, last: UUID) -> list[UUID]:
    """Return the ids of the nodes in the range, at most ``MOST_CANDIDATES``."""
    found = connection.execute(tree_sql.NODES_BY_ID, {"first": first, "last": last, "most": MOST_CANDIDATES})
    return list(found.scalars())


def read_shown(connection: Connection | Session, node_id: UUID) -> Shown:
    """Read a node that exists, with all that belongs to it. Four statements, whatever the session's length."""
    which = {"node_id": node_id}
    node = node_from_row(connection.execute(sql.NODE_BY_ID, which).one())
    run = None if node.run_id is None else connection.execute(tree_sql.RUN, {"run_id": node.run_id}).one_or_none()
    return Shown(
        node=node,
        parents=tuple(Relative(**row._mapping) for row in connection.execute(tree_sql.PARENTS, which)),
        successors=tuple(Relative(**row._mapping) for row in connection.execute(tree_sql.SUCCESSORS, which)),
        run=None if run is None else MakingRun(**run._mapping),
    )
