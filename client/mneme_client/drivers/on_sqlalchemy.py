"""SQLAlchemy: sessions and connections, and those of asyncio, which are the same inside."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Connection, DateTime, Integer, Text, TextClause, bindparam, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.types import TypeEngine

from mneme_client.drivers.choice import Rows
from mneme_client.refusals import refusal
from mneme_client.requests import Request
from mneme_client.sending import enqueue_committed

if TYPE_CHECKING:
    # Not at run time: without greenlet, which SQLAlchemy 2.1 does not install by itself, the import fails.
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

_WRITTEN = "mneme_client.written"
"""Key of ``Session.info`` under which the ids of the sessions written to in this transaction stand, in order."""

# asyncpg takes a parameter's type from here, and would otherwise make an int4 of every int.
_TYPES: dict[str, TypeEngine[Any]] = {
    "session_id": Text(),
    "content": Text(),
    "span_start": BigInteger(),
    "span_end": BigInteger(),
    "token_count": Integer(),
    "token_budget": Integer(),
    "started_at": DateTime(timezone=True),
    "ended_at": DateTime(timezone=True),
}


@cache
def _clause(statement: str) -> TextClause:
    names = re.findall(r"%\((\w+)\)s", statement)
    clause = text(re.sub(r"%\((\w+)\)s", r":\1", statement))
    return clause.bindparams(*(bindparam(name, type_=_TYPES[name]) for name in names))


class SqlalchemyDriver:
    """Runs requests in the transaction of a session or connection, which its caller commits."""

    def __init__(self, target: Session | Connection) -> None:
        self._target = target

    def run(self, request: Request) -> Rows:
        """Return the rows.

        The savepoint is the connection's and not the session's, which would flush what the caller has pending.
        """
        try:
            connection = self._target.connection() if isinstance(self._target, Session) else self._target
            if request.writes_to is None or _is_autocommit(connection):
                rows = connection.execute(_clause(request.statement), request.parameters).all()
            else:
                with connection.begin_nested():
                    rows = connection.execute(_clause(request.statement), request.parameters).all()
        except (SQLAlchemyError, OSError, UnicodeError) as error:
            # asyncpg's refused connection, and text that the connection's encoding lacks, come as they are.
            refused = refusal(error.orig if isinstance(error, DBAPIError) else None, error)
        else:
            if request.writes_to is not None and isinstance(self._target, Session):
                _send_after_commit(self._target, request.writes_to)
            return rows
        # Outside, so that the driver's error, which quotes the content, does not hang on it as its context.
        raise refused


class AsyncSqlalchemyDriver:
    """The same for asyncio."""

    def __init__(self, target: "AsyncSession | AsyncConnection") -> None:
        self._target = target

    async def run(self, request: Request) -> Rows:
        """Return the rows."""
        return await self._target.run_sync(lambda inner: SqlalchemyDriver(inner).run(request))


def _is_autocommit(connection: Connection) -> bool:
    """Say whether each statement is its own transaction, where Postgres allows no savepoint."""
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


def _send_after_commit(session: Session, session_id: str) -> None:
    if _WRITTEN not in session.info:
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_transaction_end", _ended)
    session.info.setdefault(_WRITTEN, {})[session_id] = None


def _committed(session: Session) -> None:
    # The release of a savepoint comes here too, and the transaction around it may still be rolled back. So may that of a
    # connection which the session has joined; who owns that may call enqueue, or leave it to the sweep.
    joined = isinstance(session.bind, Connection) and session.bind.in_transaction()
    if not session.in_nested_transaction() and not joined:
        for session_id in session.info.get(_WRITTEN, ()):
            enqueue_committed(session_id)


def _ended(session: Session, ended: SessionTransaction) -> None:
    # What a savepoint took back may be sent all the same: a hint too many does no harm.
    if ended.parent is None:
        session.info.get(_WRITTEN, {}).clear()
