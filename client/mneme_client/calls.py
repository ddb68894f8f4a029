"""The calls of a main app, on its own connection or session and in its own transaction."""

from datetime import datetime
from uuid import UUID

from mneme_client.drivers import AnyConnection, choose
from mneme_client.nodes import ActiveNode, node_from_row
from mneme_client.requests import active_request, memory_request, write_request


def write_snapshot(
    connection: AnyConnection,
    session_id: str,
    span_start: int,
    span_end: int,
    content: str,
    *,
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
    token_count: int | None = None,
) -> UUID:
    """Write a Level 1 snapshot, a short summary of messages of a session, in the caller's transaction.

    On a SQLAlchemy session or on Django's connection the session is sent to mneme's worker once the outermost transaction
    has committed. On a plain connection (SQLAlchemy's ``Connection``, psycopg's) call :func:`enqueue` after your commit.
    Inside a transaction the write is guarded by a savepoint, so that the transaction stays usable when it is refused.

    Args:
        connection: a SQLAlchemy ``Session`` or ``Connection``, a psycopg ``Connection``, ``django.db.connection``, or the
            alias of one of Django's databases.
        session_id: your own id of the conversation, 1 to 255 bytes.
        span_start: the number of the first summarised message; you choose the numbers, they only must grow.
        span_end: the number of the last one, inclusive.
        content: the summary, at most 32,768 bytes of UTF-8. NUL and lone surrogates are taken out.
        started_at: when the summarised conversation began, with a time zone.
        ended_at: when it ended.
        token_count: its size in tokens by your own count; kept for you, and not used.

    Returns:
        The node's id. The same span with the same content gives the same id again, so a write may be repeated.

    Raises:
        InvalidInput: blank or oversized content, a reversed span, reversed times, a wrong type.
        SnapshotConflict: the span already has a snapshot with other content; nothing was changed.
        UnsupportedConnection: it is none of those connections.
        SchemaMissing: the schema is not there, or not for this role.
        DatabaseError: the database refused for another reason, or is out of reach.
    """
    driver = choose(connection)
    request = write_request(session_id, span_start, span_end, content, started_at, ended_at, token_count)
    return UUID(str(driver.run(request)[0][0]))


def active(connection: AnyConnection, session_id: str) -> list[ActiveNode]:
    """Return the nodes that are the session's memory now, in the order of the conversation, in one round trip.

    Args:
        connection: as for :func:`write_snapshot`.
        session_id: the session; an unknown one has no nodes.

    Raises:
        InvalidInput: it is no session id.
        UnsupportedConnection: it is none of those connections.
        DatabaseError: the database refused, or is out of reach.
    """
    driver = choose(connection)
    return [node_from_row(row) for row in driver.run(active_request(session_id))]


def memory(connection: AnyConnection, session_id: str, token_budget: int) -> str:
    """Return what to put into the agent's context, in one round trip: long-term memory, then recent memory.

    Args:
        connection: as for :func:`write_snapshot`.
        session_id: the session; an unknown one has an empty memory.
        token_budget: the size of the agent's context in tokens, 0 or more. Memory takes its shares of it (a fifth in all).

    Raises:
        InvalidInput: it is no session id, or no budget.
        UnsupportedConnection: it is none of those connections.
        DatabaseError: the database refused, or is out of reach.
    """
    driver = choose(connection)
    return str(driver.run(memory_request(session_id, token_budget))[0][0])
