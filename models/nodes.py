"""Plain values: what the store takes and returns. They stay readable after the transaction that read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row


@dataclass(frozen=True, kw_only=True)
class SummaryNode:
    """One summary: a Level 1 snapshot, or what was folded from nodes one level below.

    Attributes are named like the columns of ``mneme.summary_nodes``. To write one, ``session_id``, ``level``, the span
    (message numbers, inclusive) and ``content`` are enough, with ``parent_node_ids`` above level 1; a ``token_count``
    given then is kept as ``reported_tokens``, and what the database decides (``kind``, ``created_at``, the flags) is
    ignored.
    """

    session_id: str
    level: int
    span_start: int
    span_end: int
    content: str
    parent_node_ids: tuple[UUID, ...] = ()
    id: UUID | None = None
    kind: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    token_count: int | None = None
    reported_tokens: int | None = None
    superseded_by: UUID | None = None
    superseded: bool = False
    dismissed_at: datetime | None = None
    dismissed_reason: str | None = None
    retired_at: datetime | None = None
    retired_reason: str | None = None
    replaced_by: UUID | None = None
    compaction_level: int = 1
    degraded: bool = False
    model: str | None = None
    prompt_version: str | None = None
    run_id: UUID | None = None
    fidelity: Mapping[str, float] | None = field(default=None, hash=False)
    created_at: datetime | None = None

    def __repr__(self) -> str:
        """Show everything but the content: a node that lands in a log must not take the conversation along."""
        return (
            f"SummaryNode(id={self.id}, session_id={self.session_id!r}, level={self.level},"
            f" span={self.span_start}..{self.span_end}, token_count={self.token_count})"
        )


@dataclass(frozen=True, kw_only=True)
class MessageSpan:
    """Neighbouring messages of the conversation log, from ``start_seq`` to ``end_seq``, inclusive.

    ``estimated_tokens`` is the sum of their parts' ``token_estimate``.
    """

    start_seq: int
    end_seq: int
    message_count: int
    estimated_tokens: int


def node_from_row(row: Row[Any]) -> SummaryNode:
    """Make a node of a row that has ``sql.NODE_COLUMNS``."""
    values = dict(row._mapping)
    return SummaryNode(**{**values, "parent_node_ids": tuple(values["parent_node_ids"])})
