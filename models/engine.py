"""The engine of a process, and the one way in which mneme opens a transaction of its own."""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TypeVar
from weakref import WeakSet

import psycopg
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, DisconnectionError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from models.errors import StorageError
from models.settings import Settings

T = TypeVar("T")

LOCK_TIMEOUT_SECONDS = 2
STATEMENT_TIMEOUT_SECONDS = 10

# Set for each transaction, never for the session: behind pgbouncer in transaction mode, the session is somebody else's
# with the next transaction. A process stopped inside a commit must not hold locks that no lease can break.
_SET_TIMEOUTS = text(
    "select set_config('lock_timeout', :lock_ms, true), set_config('statement_timeout', :statement_ms, true),"
    " set_config('idle_in_transaction_session_timeout', :statement_ms, true),"
    # A role's or a database's own may be one that psycopg does not read.
    " set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, MDY', true),"
    " set_config('IntervalStyle', 'postgres', true)"
)

_CONNECT_ARGS = {
    "prepare_threshold": None,
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "mneme",
    "client_encoding": "utf8",
}

_engines: WeakSet[Engine] = WeakSet()


def make_engine(url: str, pool_size: int = 5, *, pooled: bool = True) -> Engine:
    """Return an engine for the given URL, of at most ``pool_size`` connections.

    Errors of its statements show no parameters, since these hold conversation text. Read committed is set whatever the
    database's default is: claiming relies on each statement seeing what was committed before it.
    """
    options = {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": 10, "pool_pre_ping": True} if pooled else {}
    engine = create_engine(
        url,
        connect_args=_CONNECT_ARGS,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        poolclass=None if pooled else NullPool,
        **options,
    )
    _engines.add(engine)
    return engine


_making = Lock()


def get_engine(settings: Settings) -> Engine:
    """Return the process's engine for these settings, made at the first call.

    Raises:
        SettingsError: no database is set.
    """
    with _making:  # a cache alone would let the first threads of a worker make one each
        return _make_once(settings)


@cache
def _make_once(settings: Settings) -> Engine:
    return make_engine(settings.require_database_url(), settings.database.pool_size)


def _forget_connections() -> None:
    """Leave to the parent process what it had opened before the fork: two processes on one socket corrupt both."""
    for engine in _engines:
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)


@contextmanager
def transaction(engine: Engine, *, statement_seconds: float = STATEMENT_TIMEOUT_SECONDS) -> Iterator[Connection]:
    """Open a transaction with the timeouts of DESIGN; commit at the end, roll back on any exception.

    Raises:
        StorageError: whatever the database or its driver raised, without parameters and details, which may hold text.
    """
    try:
        with engine.begin() as connection:
            connection.execute(
                _SET_TIMEOUTS,
                {"lock_ms": f"{LOCK_TIMEOUT_SECONDS * 1000}", "statement_ms": f"{int(statement_seconds * 1000)}"},
            )
            yield connection
    except (SQLAlchemyError, psycopg.Error) as error:
        raise _interruption(error) or storage_error(error) from None


def _interruption(error: BaseException) -> BaseException | None:
    """Return the interruption of the process that a rollback failed after: a statement that was cut off takes none."""
    context = error.__context__
    while context is not None and isinstance(context, Exception):
        context = context.__context__
    return context


def in_transaction(
    engine: Engine, work: Callable[[Connection], T], *, statement_seconds: float = STATEMENT_TIMEOUT_SECONDS
) -> T:
    """Return what ``work`` returns, made in a transaction as above, and made anew from its first statement after a conflict.

    Our own locks have one order; a deadlock can still come about with a transaction of the main app's.

    Raises:
        StorageError: it failed, or conflicted each time.
    """
    for last in (False, False, True):
        try:
            with transaction(engine, statement_seconds=statement_seconds) as connection:
                return work(connection)
        except StorageError as error:
            if not error.conflict or last:
                raise
        time.sleep(random.uniform(0.01, 0.1))
    raise AssertionError("the last attempt returns or raises")


# SQLSTATE: connection, read-only after a failover, idle for too long, rollback (deadlock, serialisation), resources,
# lock timeout, operator intervention.
_CONFLICTS = ("40001", "40P01")
_TRANSIENT = ("08", "25006", "25P03", "40", "53", "55P03", "57")


def storage_error(error: SQLAlchemyError | psycopg.Error) -> StorageError:
    """Make an error of ours of one of the driver's, without the parameters and details that may quote rows."""
    raised = StorageError(describe(error))
    sqlstate = getattr(_driver_error(error), "sqlstate", None)
    raised.transient = isinstance(error, PoolTimeout | DisconnectionError) or (
        isinstance(error, OperationalError | InterfaceError | psycopg.OperationalError)
        if sqlstate is None
        else sqlstate.startswith(_TRANSIENT)
    )
    raised.conflict = sqlstate in _CONFLICTS
    return raised


def describe(error: SQLAlchemyError | psycopg.Error) -> str:
    """Say in one line what the database said, leaving out details: they may quote rows."""
    driver = _driver_error(error)
    if driver is None:
        return f"database: {type(error).__name__}: {str(error).splitlines()[0]}"
    diagnosis = getattr(driver, "diag", None)
    if diagnosis is not None and diagnosis.message_primary:
        return f"database: {diagnosis.message_primary} (SQLSTATE {diagnosis.sqlstate})"
    said = str(driver).splitlines()[0] if str(driver) else type(driver).__name__
    return (
        f"database: {'out of reach' if isinstance(driver, psycopg.OperationalError) else type(driver).__name__}: {said}"
    )


def _driver_error(error: Exception) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error if isinstance(error, psycopg.Error) else None
