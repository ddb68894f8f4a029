"""psycopg 3: connections, sync and asyncio. They tell nobody of their commit, so nothing is sent from here."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from mneme_client.drivers.choice import Rows
from mneme_client.errors import UnsupportedConnection
from mneme_client.refusals import refusal
from mneme_client.requests import Request

_BEGIN = "savepoint mneme_client"
_RELEASE = "release savepoint mneme_client"
_UNDO = "rollback to savepoint mneme_client"


class PsycopgDriver:
    """Runs requests in the transaction of a connection, which its caller commits."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def run(self, request: Request) -> Rows:
        """Return the rows."""
        _refuse_unfit(self._connection)
        try:
            with self._guarded(request), self._connection.cursor(row_factory=tuple_row) as cursor:
                return cursor.execute(request.statement, request.parameters).fetchall()
        except psycopg.Error as error:
            raise refusal(error, error) from None

    @contextmanager
    def _guarded(self, request: Request) -> Iterator[None]:
        """Keep the transaction usable. Not by ``connection.transaction()``, which commits where none was begun."""
        if request.writes_to is None or _is_on_its_own(self._connection):
            yield
            return
        self._connection.execute(_BEGIN)
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):
                self._connection.execute(_UNDO)
                self._connection.execute(_RELEASE)
            raise
        self._connection.execute(_RELEASE)


class AsyncPsycopgDriver:
    """The same for asyncio."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def run(self, request: Request) -> Rows:
        """Return the rows."""
        _refuse_unfit(self._connection)
        try:
            async with self._guarded(request), self._connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(request.statement, request.parameters)
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise refusal(error, error) from None

    @asynccontextmanager
    async def _guarded(self, request: Request) -> AsyncIterator[None]:
        if request.writes_to is None or _is_on_its_own(self._connection):
            yield
            return
        await self._connection.execute(_BEGIN)
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):
                await self._connection.execute(_UNDO)
                await self._connection.execute(_RELEASE)
            raise
        await self._connection.execute(_RELEASE)


def _refuse_unfit(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a connection in pipeline mode, where a refused statement takes those around it along, or of another encoding.

    Raises:
        UnsupportedConnection: it is.
    """
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise UnsupportedConnection("the psycopg connection is in pipeline mode: call this outside the pipeline")
    if not connection.closed and connection.info.encoding != "utf-8":
        raise UnsupportedConnection(
            f"the psycopg connection's client_encoding is {connection.info.encoding}, which lacks most characters: use UTF8"
        )


def _is_on_its_own(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Say whether the next statement will be a transaction of its own, where Postgres allows no savepoint."""
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE
