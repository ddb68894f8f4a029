"""The tree of a session: what is active, and what lies under it. One statement for each level shown, whatever its size."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row
from sqlalchemy.orm import Session

from models import sql, tree_sql


@dataclass(frozen=True, kw_only=True)
class TreeNode:
    """A node with those it was made from, in their order.

    ``started_at`` and ``ended_at`` are ISO 8601 in UTC, to the second. ``parent_count`` says how many parents there are,
    also where ``parents`` is empty because the tree was cut at its depth. ``opening`` is the beginning of the content,
    as it was written, if it was asked for.
    """

    id: UUID
    level: int
    span_start: int
    span_end: int
    started_at: str | None
    ended_at: str | None
    token_count: int
    degraded: bool
    dismissed_reason: str | None
    opening: str | None
    parent_count: int
    parents: "tuple[TreeNode, ...]" = ()


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A session's active nodes in order of span, the newest of them if not all, and what the whole session amounts to.

    ``snapshots`` and ``folds`` count the nodes of level 1 and above, without retired ones; tokens are by our estimator.
    """

    session_id: str
    roots: tuple[TreeNode, ...]
    older_roots: int
    snapshots: int
    folds: int
    active_tokens: int
    snapshot_tokens: int


def read_tree(
    connection: Connection | Session,
    session_id: str,
    *,
    depth: int,
    level: int = 1,
    most_roots: int,
    with_text: bool = False,
) -> Tree | None:
    """Read the tree of a session, or None when there is no such session.

    Args:
        connection: where; the caller's transaction.
        session_id: the session.
        depth: how many levels to show, counted from the roots, which are 1.
        level: only roots of this level and up.
        most_roots: at most so many roots, the newest.
        with_text: whether to read how the contents begin.
    """
    wanted = {"session_id": session_id, "level": level, "with_text": with_text}
    totals = connection.execute(tree_sql.TREE_TOTALS, wanted).one_or_none()
    if totals is None:
        return None
    rows = list(connection.execute(tree_sql.TREE_ROOTS, wanted | {"most": most_roots}))[::-1]
    below = _read_below(connection, rows, depth, with_text)
    return Tree(
        session_id=session_id,
        roots=tuple(_build(row, below) for row in rows),
        older_roots=max(0, totals.roots - len(rows)),
        snapshots=totals.snapshots,
        folds=totals.folds,
        active_tokens=totals.active_tokens,
        snapshot_tokens=totals.snapshot_tokens,
    )


def session_exists(connection: Connection | Session, session_id: str) -> bool:
    """Say whether anything was ever written for the session."""
    return bool(connection.execute(sql.SESSION_EXISTS, {"session_id": session_id}).scalar_one())


def _read_below(
    connection: Connection | Session, rows: list[Row[Any]], depth: int, with_text: bool
) -> dict[UUID, list[Row[Any]]]:
    """Return the parents of each node down to the given depth, level by level."""
    below: dict[UUID, list[Row[Any]]] = defaultdict(list)
    for _ in range(depth - 1):
        node_ids = [row.id for row in rows if row.parent_count]
        if not node_ids:
            break
        rows = list(connection.execute(tree_sql.TREE_PARENTS, {"node_ids": node_ids, "with_text": with_text}))
        for row in rows:
            below[row.child_id].append(row)
    return below


def _build(row: Row[Any], below: dict[UUID, list[Row[Any]]]) -> TreeNode:
    values = {key: value for key, value in row._mapping.items() if key != "child_id"}
    return TreeNode(**values, parents=tuple(_build(parent, below) for parent in below.get(row.id, ())))
