"""Telling by a connection's type which driver to use, without importing a library that the main app does not use."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from mneme_client.errors import UnsupportedConnection
from mneme_client.requests import Request

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    import sqlalchemy.ext.asyncio
    import sqlalchemy.orm

Rows: TypeAlias = Sequence[Sequence[Any]]


class DjangoConnection(Protocol):
    """``django.db.connection``, or one of ``django.db.connections``."""

    alias: str
    in_atomic_block: bool


AnyConnection: TypeAlias = Union[
    "sqlalchemy.orm.Session",
    "sqlalchemy.orm.scoped_session[Any]",
    "sqlalchemy.Connection",
    "psycopg.Connection[Any]",
    DjangoConnection,
    str,
]
"""A connection or session of the main app; a ``str`` is the alias of one of Django's databases."""

AsyncConnection: TypeAlias = Union[
    "sqlalchemy.ext.asyncio.AsyncSession",
    "sqlalchemy.ext.asyncio.async_scoped_session[Any]",
    "sqlalchemy.ext.asyncio.AsyncConnection",
    "psycopg.AsyncConnection[Any]",
    DjangoConnection,
    str,
]
"""The same under asyncio. Django's connections are the same there, and are used in Django's own thread for them."""


class Driver(Protocol):
    """Runs requests on a connection."""

    def run(self, request: Request) -> Rows:
        """Return the rows. A refused write leaves the caller's transaction usable; a written session is sent later."""


class AsyncDriver(Protocol):
    """Runs requests on a connection of asyncio."""

    async def run(self, request: Request) -> Rows:
        """Return the rows, as :meth:`Driver.run` does."""


def choose(connection: object) -> Driver:
    """Return the driver for a connection.

    Raises:
        UnsupportedConnection: it is none, or one of asyncio.
    """
    if _is(connection, "sqlalchemy.orm", "scoped_session"):
        connection = connection()  # type: ignore[operator]
    if _is(connection, "sqlalchemy.orm", "Session") or _is(connection, "sqlalchemy", "Connection"):
        from mneme_client.drivers.on_sqlalchemy import SqlalchemyDriver

        return SqlalchemyDriver(connection)  # type: ignore[arg-type]
    if _is(connection, "psycopg", "Connection"):
        from mneme_client.drivers.on_psycopg import PsycopgDriver

        return PsycopgDriver(connection)  # type: ignore[arg-type]
    if (alias := _django_alias(connection)) is not None:
        from mneme_client.drivers.on_django import DjangoDriver

        return DjangoDriver(alias)
    advice = "; use the function of the same name in mneme_client.aio" if _is_async(connection) else ""
    raise UnsupportedConnection(f"{_name(connection)} is no connection of SQLAlchemy, psycopg or Django{advice}")


def choose_async(connection: object) -> AsyncDriver:
    """Return the driver for a connection of asyncio.

    Raises:
        UnsupportedConnection: it is none, or one that would block the event loop.
    """
    if _is(connection, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        connection = connection()  # type: ignore[operator]
    if _is(connection, "sqlalchemy.ext.asyncio", "AsyncSession") or _is(
        connection, "sqlalchemy.ext.asyncio", "AsyncConnection"
    ):
        from mneme_client.drivers.on_sqlalchemy import AsyncSqlalchemyDriver

        return AsyncSqlalchemyDriver(connection)  # type: ignore[arg-type]
    if _is(connection, "psycopg", "AsyncConnection"):
        from mneme_client.drivers.on_psycopg import AsyncPsycopgDriver

        return AsyncPsycopgDriver(connection)  # type: ignore[arg-type]
    if (alias := _django_alias(connection)) is not None:
        from mneme_client.drivers.on_django import AsyncDjangoDriver

        return AsyncDjangoDriver(alias)
    raise UnsupportedConnection(
        f"{_name(connection)} is no connection of SQLAlchemy's asyncio, psycopg's asyncio or Django"
    )


def _is(thing: object, module: str, name: str) -> bool:
    """Say whether it is of a class of a library that, to have made it, must have been imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(thing, kind)


def _is_async(connection: object) -> bool:
    return type(connection).__name__.lower().startswith("async")


def _django_alias(connection: object) -> str | None:
    if isinstance(connection, str):
        return connection if "django.db" in sys.modules else None
    # Read from the proxy itself: it would open a connection in this thread to answer for one.
    if _is(connection, "django.utils.connection", "ConnectionProxy"):
        return str(vars(connection)["_alias"])
    if _is(connection, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        return str(connection.alias)  # type: ignore[attr-defined]
    return None


def _name(connection: object) -> str:
    return f"a {type(connection).__name__}"
