"""Each kind of connection, used as its users do: in a transaction, and read afterwards on a fresh one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mneme_client
import psycopg
from asgiref.sync import sync_to_async
from django.db import connection as django_connection
from django.db import connections, transaction
from mneme_client import aio
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

Work = Callable[["Calls"], Awaitable[Any]]


class Calls:
    """The client's calls on one connection, sync or not, behind one face."""

    def __init__(self, connection: Any, module: Any) -> None:
        self.connection = connection
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            result = getattr(self._module, name)(self.connection, *arguments, **keywords)
            return await result if self._module is aio else result

        return call


def finish(work: Awaitable[Any]) -> Any:
    """Run to its end what never really waits: Django refuses its connections where an event loop runs."""
    coroutine = work.__await__()
    try:
        next(coroutine)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited")


def _engine(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


def sqlalchemy_session(url: str, work: Work, driver: str = "psycopg") -> Any:
    engine = create_engine(_engine(url, driver), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        return finish(work(Calls(session, mneme_client)))


def sqlalchemy_scoped_session(url: str, work: Work) -> Any:
    factory = scoped_session(sessionmaker(create_engine(url, poolclass=NullPool)))
    try:
        with factory.begin():
            return finish(work(Calls(factory, mneme_client)))
    finally:
        factory.remove()


def sqlalchemy_connection(url: str, work: Work) -> Any:
    with create_engine(_engine(url, "psycopg"), poolclass=NullPool).begin() as connection:
        return finish(work(Calls(connection, mneme_client)))


def psycopg_connection(url: str, work: Work) -> Any:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:  # type: ignore[attr-defined]
        return finish(work(Calls(connection, mneme_client)))


def psycopg_block(url: str, work: Work) -> Any:
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction():
        return finish(work(Calls(connection, mneme_client)))


def django_default(url: str, work: Work) -> Any:
    with transaction.atomic():
        return finish(work(Calls(django_connection, mneme_client)))


def django_alias(url: str, work: Work) -> Any:
    with transaction.atomic(using="other"):
        return finish(work(Calls("other", mneme_client)))


def django_wrapper(url: str, work: Work) -> Any:
    with transaction.atomic(using="other"):
        return finish(work(Calls(connections["other"], mneme_client)))


def async_session(url: str, work: Work, driver: str = "psycopg") -> Any:
    async def run() -> Any:
        engine = create_async_engine(_engine(url, driver), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            return await work(Calls(session, aio))

    return asyncio.run(run())


def async_session_asyncpg(url: str, work: Work) -> Any:
    return async_session(url, work, "asyncpg")


def async_connection(url: str, work: Work) -> Any:
    async def run() -> Any:
        async with create_async_engine(_engine(url, "psycopg"), poolclass=NullPool).begin() as connection:
            return await work(Calls(connection, aio))

    return asyncio.run(run())


def async_psycopg(url: str, work: Work) -> Any:
    async def run() -> Any:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            return await work(Calls(connection, aio))

    return asyncio.run(run())


def async_django(url: str, work: Work) -> Any:
    """Each call is a transaction of its own."""

    async def run() -> Any:
        try:
            return await work(Calls(django_connection, aio))
        finally:
            await sync_to_async(connections.close_all)()  # in the thread that Django keeps for them

    return asyncio.run(run())


SENDING = [
    sqlalchemy_session,
    sqlalchemy_scoped_session,
    django_default,
    django_alias,
    django_wrapper,
    async_session,
    async_session_asyncpg,
]
PLAIN = [sqlalchemy_connection, psycopg_connection, psycopg_block, async_connection, async_psycopg]
TRANSACTIONAL = SENDING + PLAIN
ALL = [*TRANSACTIONAL, async_django]
