"""The whole DAG of a session with its texts and its history: every node that was ever written. Two statements in all."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection, Row
from sqlalchemy.orm import Session

from models import tree_sql
from models.tree import session_exists

State = Literal["active", "superseded", "dismissed", "retired"]


@dataclass(frozen=True, kw_only=True)
class PictureNode:
    """A node as it is now, and since when.

    Moments are ISO 8601 in UTC: ``started_at`` and ``ended_at`` of the messages to the second, the others to the microsecond,
    all of one length, so that their order is that of the texts. ``covered`` says from when until when (None: still) another
    node took its place. That is read from the successors: no column keeps the moment, so a successor counts from its
    ``created_at`` to its ``retired_at``.
    """

    id: UUID
    level: int
    span_start: int
    span_end: int
    started_at: str | None
    ended_at: str | None
    token_count: int
    reported_tokens: int | None
    superseded_by: UUID | None
    dismissed_at: str | None
    dismissed_reason: str | None
    retired_at: str | None
    retired_reason: str | None
    replaced_by: UUID | None
    degraded: bool
    compaction_level: int
    model: str | None
    prompt_version: str | None
    created_at: str
    content: str
    parent_ids: tuple[UUID, ...]
    covered: tuple[tuple[str, str | None], ...]

    @property
    def state(self) -> State:
        """What it is now. An active node may also be ``degraded``, a dismissed one is active as well."""
        if self.retired_at is not None:
            return "retired"
        if self.superseded_by is not None:
            return "superseded"
        return "active" if self.dismissed_at is None else "dismissed"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """All nodes of a session, by level, span and age."""

    session_id: str
    nodes: tuple[PictureNode, ...]


def read_picture(connection: Connection | Session, session_id: str) -> Picture | None:
    """Read every node of a session, or None when there is no such session.

    Args:
        connection: where; the caller's transaction.
        session_id: the session.
    """
    if not session_exists(connection, session_id):
        return None
    rows = list(connection.execute(tree_sql.PICTURE_NODES, {"session_id": session_id}))
    covered = _covered(rows)
    nodes = (
        PictureNode(
            **{**row._mapping, "parent_ids": tuple(row.parent_ids)}, covered=tuple(sorted(covered[row.id], key=str))
        )
        for row in rows
    )
    return Picture(session_id=session_id, nodes=tuple(nodes))


def _covered(rows: list[Row[Any]]) -> dict[UUID, list[tuple[str, str | None]]]:
    """Return when others stood in the place of each node: the one that does now, and those that were retired."""
    successors = {row.id: row.superseded_by for row in rows}
    covered: dict[UUID, list[tuple[str, str | None]]] = defaultdict(list)
    for row in rows:
        for parent_id in row.parent_ids:
            if successors.get(parent_id) == row.id or row.retired_at is not None:
                covered[parent_id].append((row.created_at, row.retired_at))
    return covered
