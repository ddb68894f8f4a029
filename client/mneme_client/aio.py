"""The same calls for asyncio: ``await aio.write_snapshot(session, ...)``. Arguments, results and errors are the same.

``connection`` is a SQLAlchemy ``AsyncSession`` or ``AsyncConnection``, a psycopg ``AsyncConnection``,
``django.db.connection``, or the alias of one of Django's databases. ``enqueue`` is the plain function: it never waits, so
there is nothing to await.
"""

from datetime import datetime
from uuid import UUID

from mneme_client.drivers import AsyncConnection, choose_async
from mneme_client.nodes import ActiveNode, node_from_row
from mneme_client.requests import active_request, memory_request, write_request
from mneme_client.sending import enqueue

__all__ = ["active", "enqueue", "memory", "write_snapshot"]


async def write_snapshot(
    connection: AsyncConnection,
    session_id: str,
    span_start: int,
    span_end: int,
    content: str,
    *,
    started_at: datetime | None = None,
    ended_at: datetime | None = None,
    token_count: int | None = None,
) -> UUID:
    """Write a Level 1 snapshot in the caller's transaction; see :func:`mneme_client.write_snapshot`.

    On an ``AsyncSession`` the session is sent after its outermost commit. On a plain connection call :func:`enqueue` after
    your commit. On Django's, which has no transaction across ``await``, the write is committed and sent at once.
    """
    driver = choose_async(connection)
    request = write_request(session_id, span_start, span_end, content, started_at, ended_at, token_count)
    return UUID(str((await driver.run(request))[0][0]))


async def active(connection: AsyncConnection, session_id: str) -> list[ActiveNode]:
    """Return the nodes that are the session's memory now; see :func:`mneme_client.active`."""
    driver = choose_async(connection)
    return [node_from_row(row) for row in await driver.run(active_request(session_id))]


async def memory(connection: AsyncConnection, session_id: str, token_budget: int) -> str:
    """Return what to put into the agent's context; see :func:`mneme_client.memory`."""
    driver = choose_async(connection)
    return str((await driver.run(memory_request(session_id, token_budget)))[0][0])
