"""What is read back: plain values that stay readable after the transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

COLUMNS = (
    "id", "session_id", "level", "span_start", "span_end", "started_at", "ended_at", "content", "token_count",
    "degraded", "model", "created_at",
)  # fmt: skip
"""Columns of ``mneme.active_summary_nodes`` that an :class:`ActiveNode` has, in its order."""


@dataclass(frozen=True)
class ActiveNode:
    """A summary that is part of a session's memory now.

    Attributes:
        id: by which an agent may ask to open it.
        session_id: the main app's own id of the conversation.
        level: 1 for a snapshot of messages, 2 and up for what was folded from nodes one level below.
        span_start: the first message that it covers, in the main app's own numbers.
        span_end: the last one, inclusive.
        started_at: when the summarised conversation began, with a time zone; None where that was not said.
        ended_at: when it ended.
        content: the summary.
        token_count: its size in tokens, by mneme's estimate.
        degraded: whether it is an extract that stands in for a model's answer.
        model: who wrote it; None for snapshots.
        created_at: when it was written.
    """

    id: UUID
    session_id: str
    level: int
    span_start: int
    span_end: int
    started_at: datetime | None
    ended_at: datetime | None
    content: str
    token_count: int
    degraded: bool
    model: str | None
    created_at: datetime

    def __repr__(self) -> str:
        """Show everything but the content: a node that lands in a log must not take the conversation along."""
        return (
            f"ActiveNode(id={self.id}, session_id={self.session_id!r}, level={self.level},"
            f" span={self.span_start}..{self.span_end}, token_count={self.token_count})"
        )


def node_from_row(row: Sequence[Any]) -> ActiveNode:
    """Make a node of a row of :data:`COLUMNS`."""
    return ActiveNode(UUID(str(row[0])), *row[1:])
