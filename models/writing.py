"""The one statement that writes a node, for whoever has checked that it may be written."""

from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from models import sql
from models.nodes import SummaryNode


def write_node(connection: Connection | Session, node: SummaryNode) -> UUID:
    """Write a node with its message, its parts and its edges, and return its id, given by the database if it has none.

    Raises:
        DBAPIError: the database refuses it; SQLSTATE 22023 with a sentence in plain words, or a constraint's.
    """
    written: UUID = connection.execute(
        sql.INSERT_NODE,
        {
            "id": node.id,
            "session_id": node.session_id,
            "level": node.level,
            "span_start": node.span_start,
            "span_end": node.span_end,
            "content": node.content,
            "started_at": node.started_at,
            "ended_at": node.ended_at,
            "reported_tokens": node.token_count if node.token_count is not None else node.reported_tokens,
            "parent_node_ids": list(node.parent_node_ids),
            "compaction_level": node.compaction_level,
            "degraded": node.degraded,
            "model": node.model,
            "prompt_version": node.prompt_version,
            "run_id": node.run_id,
        },
    ).scalar_one()
    return written
