"""``SummaryDAGStore``: the DAG of summaries of a session, on the caller's transaction."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID, uuid4

from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from models import sql
from models.checks import check_node, known_session_id
from models.engine import describe, storage_error
from models.errors import InvalidNode, NodeExists, StorageError, SupersedeError
from models.nodes import MessageSpan, SummaryNode, node_from_row
from models.text import clean_text
from models.writing import write_node

WRITTEN_SESSIONS = "mneme.written_sessions"
"""Key of ``Session.info`` under which the ids of the sessions written to in this transaction stand, for whoever enqueues."""


class SummaryDAGStore:
    """Reads and writes summary nodes, their edges and their supersession.

    Args:
        session: a SQLAlchemy session whose transaction the caller owns: nothing here commits or rolls back. A refused
            write leaves the transaction usable.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def insert_node(self, node: SummaryNode, *, id_generator: Callable[[], UUID] = uuid4) -> SummaryNode:
        """Write a node with its message, its parts and its edges.

        Args:
            node: what to write. NUL and lone surrogates are taken out of the content. Without an ``id`` the generator
                gives one.
            id_generator: called once, if the node has no id.

        Returns:
            The node as it was written.

        Raises:
            NodeExists: the id, or a Level 1 node's span, is taken.
            InvalidNode: blank or oversized content, a reversed span, unknown parents, parents of another session or
                level, a span or times that are not those of the parents together.
            StorageError: the database refused for another reason, or is out of reach.
        """
        check_node(node)
        node_id = node.id if node.id is not None else id_generator()
        node = replace(node, id=node_id, content=clean_text(node.content))
        check_node(node)
        try:
            with self._session.begin_nested():
                write_node(self._session, node)
        except DBAPIError as error:
            raise _write_error(error, node) from None
        self._session.info.setdefault(WRITTEN_SESSIONS, set()).add(node.session_id)
        written = self.get_node_by_id(node_id)
        assert written is not None  # noqa: S101 - written a moment ago, in this transaction
        return written

    def mark_superseded(self, node_ids: Iterable[UUID | str], *, by: UUID | str | None = None) -> int:
        """Mark nodes as replaced by their successor.

        Args:
            node_ids: the parents.
            by: the successor; without it, the one not-retired node that was made from all of them.

        Returns:
            How many rows changed; a node already superseded by this successor counts 0.

        Raises:
            SupersedeError: no successor, or several; an unknown or malformed id; a node that another one supersedes, or
                that is retired.
            StorageError: the database refused for another reason, or is out of reach.
        """
        wanted = sorted({_uuid_or_raise(node_id) for node_id in node_ids})
        if not wanted:
            return 0
        try:
            with self._session.begin_nested():
                return self._supersede(wanted, by)
        except IntegrityError:
            raise SupersedeError("the successor was not made from all of the given nodes") from None
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == "55000":
                raise SupersedeError("the successor does not exist or is retired: it supersedes nothing") from None
            raise storage_error(error) from None

    def _supersede(self, wanted: list[UUID], by: UUID | str | None) -> int:
        self._session.execute(sql.LOCK_NODES, {"node_ids": wanted})
        states = {row.id: row for row in self._session.execute(sql.STATES, {"node_ids": wanted})}
        successor = self._find_successor(wanted) if by is None else _uuid_or_raise(by)
        for node_id in wanted:
            state = states.get(node_id)
            if state is None:
                raise SupersedeError(f"node {node_id} does not exist")
            if state.retired:
                raise SupersedeError(f"node {node_id} is retired")
            if state.superseded_by not in (None, successor):
                raise SupersedeError(f"node {node_id} is already superseded by {state.superseded_by}")
        changed = self._session.execute(sql.SUPERSEDE, {"by": successor, "node_ids": wanted})
        return changed.rowcount  # type: ignore[attr-defined,no-any-return]

    def _find_successor(self, node_ids: list[UUID]) -> UUID:
        found = self._session.execute(sql.SUCCESSORS, {"node_ids": node_ids, "wanted": len(node_ids)}).scalars().all()
        if len(found) != 1:
            several = f"{len(found)} nodes were" if found else "no node was"
            raise SupersedeError(f"{several} made from all of the {len(node_ids)} given nodes: name the successor")
        successor: UUID = found[0]
        return successor

    def get_active_nodes(self, session_id: str) -> list[SummaryNode]:
        """Return the nodes that are part of the session's memory now, in order of ``span_start``, with content."""
        rows = self._session.execute(sql.ACTIVE_NODES, {"session_id": known_session_id(session_id)})
        return [node_from_row(row) for row in rows]

    def get_latest_node(self, session_id: str) -> SummaryNode | None:
        """Return the active node that was created last, or None when the session has none."""
        row = self._session.execute(sql.LATEST_NODE, {"session_id": known_session_id(session_id)}).one_or_none()
        return None if row is None else node_from_row(row)

    def get_coverage_gaps(self, session_id: str) -> list[MessageSpan]:
        """Return every run of conversation messages that lies in no Level 1 span, in order, wherever it is."""
        rows = self._session.execute(sql.COVERAGE_GAPS, {"session_id": known_session_id(session_id)})
        return [MessageSpan(**row._mapping) for row in rows]

    def get_node_by_id(self, node_id: UUID | str) -> SummaryNode | None:
        """Return a node, also a superseded or retired one; None when there is none or the id is malformed."""
        parsed = _uuid(node_id)
        if parsed is None:
            return None
        row = self._session.execute(sql.NODE_BY_ID, {"node_id": parsed}).one_or_none()
        return None if row is None else node_from_row(row)


def _uuid(value: UUID | str) -> UUID | None:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        return None


def _uuid_or_raise(value: UUID | str) -> UUID:
    parsed = _uuid(value)
    if parsed is None:
        raise SupersedeError(f"{value!r} is no node id")
    return parsed


def _write_error(error: DBAPIError, node: SummaryNode) -> InvalidNode | StorageError:
    """Say what a refused insert means; the database's details are left out, for they may quote the content."""
    sqlstate = getattr(error.orig, "sqlstate", None)
    diagnosis = getattr(error.orig, "diag", None)
    if sqlstate == "22023" and diagnosis is not None:
        return InvalidNode(str(diagnosis.message_primary).removeprefix("mneme: "))
    if sqlstate == "23505" and diagnosis is not None:
        taken = (
            f"messages {node.span_start} to {node.span_end} already have a Level 1 snapshot"
            if diagnosis.constraint_name == "summary_nodes_one_leaf_per_span"
            else f"the id {node.id} is taken"
        )
        return NodeExists(f"session {node.session_id!r}: {taken}")
    if sqlstate is not None and sqlstate.startswith("23"):
        return InvalidNode(f"session {node.session_id!r}: {describe(error)}")
    return storage_error(error)
