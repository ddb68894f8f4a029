"""What counts as the commit: savepoints, closed sessions, sessions used again, Django's blocks and autocommit."""

import asyncio
from datetime import UTC, datetime

import psycopg
import pytest
import redis
from django.db import connection as django_connection
from django.db import connections, transaction
from django.test.utils import override_settings
from mneme_client import DatabaseError, SnapshotConflict, UnsupportedConnection, aio, memory, write_snapshot
from mneme_client import active as active_nodes
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.client.backends import async_session
from tests.support.broker import enqueued
from tests.support.servers import free_port
from tests.support.snapshots import active

pytestmark = pytest.mark.usefixtures("hints")


def test_a_released_savepoint_is_no_commit(session: Session, hints: redis.Redis) -> None:
    with session.begin_nested():
        write_snapshot(session, "a", 1, 10, "Text.")
    assert enqueued(hints, 0) == []
    session.rollback()
    session.execute(text("select 1"))
    session.commit()
    assert enqueued(hints, 0) == []


def test_the_outermost_commit_sends_what_was_written_in_savepoints(session: Session, hints: redis.Redis) -> None:
    with session.begin_nested(), session.begin_nested():
        write_snapshot(session, "a", 1, 10, "Text.")
    nested = session.begin_nested()
    write_snapshot(session, "b", 1, 10, "Text.")
    nested.rollback()
    write_snapshot(session, "c", 1, 10, "Text.")
    session.commit()
    assert {"a", "c"} <= set(enqueued(hints, 2))


@pytest.mark.parametrize("end", ["rollback", "close", "reset"])
def test_a_session_used_again_does_not_send_what_was_not_committed(
    session: Session, hints: redis.Redis, end: str
) -> None:
    write_snapshot(session, "lost", 1, 10, "Text.")
    getattr(session, end)()
    for number in range(2):
        write_snapshot(session, f"s{number}", 1, 10, "Text.")
        session.commit()
    session.commit()
    assert enqueued(hints, 2) == ["s0", "s1"]


def test_the_callers_pending_objects_are_left_alone(session: Session) -> None:
    flushes: list[object] = []
    event.listen(session, "before_flush", lambda *_: flushes.append(1))
    write_snapshot(session, "s", 1, 10, "Text.")
    with pytest.raises(SnapshotConflict):
        write_snapshot(session, "s", 1, 10, "Other text.")
    assert (flushes, session.in_nested_transaction(), session.in_transaction()) == ([], False, True)


def test_a_session_in_autocommit_writes_at_once_and_sends_at_its_commit(
    database_url: str, engine: Engine, hints: redis.Redis
) -> None:
    autocommit = create_engine(database_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with Session(autocommit) as session:
        write_snapshot(session, "s", 1, 10, "Text.")
        with pytest.raises(SnapshotConflict):
            write_snapshot(session, "s", 1, 10, "Other text.")
        assert len(active(engine, "s")) == 1
        session.commit()
    assert enqueued(hints, 1) == ["s"]


def test_asyncio_savepoints_and_scoped_sessions(database_url: str, hints: redis.Redis) -> None:
    async def work() -> None:
        engine = create_async_engine(database_url, poolclass=NullPool)
        async with AsyncSession(engine) as session:
            async with session.begin_nested():
                await aio.write_snapshot(session, "a", 1, 10, "Text.")
            assert enqueued(hints, 0) == []
            await session.rollback()
            await aio.write_snapshot(session, "b", 1, 10, "Text.")
            await session.commit()
        scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        await aio.write_snapshot(scoped, "c", 1, 10, "Text.")
        await scoped.commit()
        await scoped.remove()

    asyncio.run(work())
    assert enqueued(hints, 2) == ["b", "c"]


def test_reading_is_one_statement_and_writing_one_within_a_savepoint(session: Session) -> None:
    statements: list[str] = []
    session.execute(text("select 1"))

    @event.listens_for(session.connection(), "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement.split("(", maxsplit=1)[0].split(maxsplit=1)[0].lower())

    active_nodes(session, "s")
    memory(session, "s", 1000)
    assert statements == ["select", "select"]
    statements.clear()
    write_snapshot(session, "s", 1, 10, "Text.")
    assert statements == ["savepoint", "select", "release"]


def test_many_sessions_leave_nothing_behind(engine: Engine) -> None:
    from sqlalchemy.event import registry

    def listeners() -> int:
        return len(registry._key_to_collection)

    before = listeners()
    for number in range(50):
        with Session(engine) as session, session.begin():
            write_snapshot(session, f"s{number}", 1, 10, "Text.")
    del session
    assert listeners() <= before + 2


def test_psycopg_in_autocommit_commits_each_write_and_stays_usable(database_url: str, engine: Engine) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        write_snapshot(connection, "s", 1, 10, "Text.")
        with pytest.raises(SnapshotConflict):
            write_snapshot(connection, "s", 1, 10, "Other text.")
        assert connection.info.transaction_status == TransactionStatus.IDLE
        assert len(active(engine, "s")) == 1


def test_psycopg_leaves_the_commit_to_its_user(database_url: str, engine: Engine) -> None:
    with psycopg.connect(database_url) as connection:
        write_snapshot(connection, "s", 1, 10, "Text.")
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        assert active(engine, "s") == []
        connection.execute("savepoint mine")
        with pytest.raises(SnapshotConflict):
            write_snapshot(connection, "s", 1, 10, "Other text.")
        connection.execute("rollback to mine")
        connection.commit()
    assert len(active(engine, "s")) == 1


def test_a_transaction_that_failed_before_says_so(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1 / 0")
        with pytest.raises(DatabaseError, match="current transaction is aborted") as raised:
            write_snapshot(connection, "s", 1, 10, "Text.")
        assert raised.value.sqlstate == "25P02"
        connection.rollback()


@pytest.mark.usefixtures("django_db")
class TestDjango:
    def test_an_inner_block_is_no_commit(self, hints: redis.Redis) -> None:
        with transaction.atomic():
            with transaction.atomic():
                write_snapshot(django_connection, "a", 1, 10, "Text.")
            assert enqueued(hints, 0) == []
        assert enqueued(hints, 1) == ["a"]

    def test_what_an_inner_block_takes_back_is_not_sent(self, hints: redis.Redis) -> None:
        def fails() -> None:
            with transaction.atomic():
                write_snapshot(django_connection, "a", 1, 10, "Text.")
                raise ZeroDivisionError

        with transaction.atomic():
            with pytest.raises(ZeroDivisionError):
                fails()
            write_snapshot(django_connection, "b", 1, 10, "Text.")
        assert enqueued(hints, 1) == ["b"]

    def test_the_hook_is_that_of_the_alias(self, hints: redis.Redis) -> None:
        with transaction.atomic(using="default"), transaction.atomic(using="other"):
            write_snapshot("other", "a", 1, 10, "Text.")
        assert enqueued(hints, 1) == ["a"]

    def test_outside_a_block_each_write_is_committed_and_sent(self, engine: Engine, hints: redis.Redis) -> None:
        write_snapshot(django_connection, "a", 1, 10, "Text.")
        assert len(active(engine, "a")) == 1
        assert enqueued(hints, 1) == ["a"]
        with pytest.raises(SnapshotConflict):
            write_snapshot(django_connection, "a", 1, 10, "Other text.")
        write_snapshot(django_connection, "a", 11, 20, "Text.")

    def test_with_autocommit_off_its_user_commits_and_sends(self, engine: Engine, hints: redis.Redis) -> None:
        transaction.set_autocommit(False)
        try:
            write_snapshot(django_connection, "a", 1, 10, "Text.")
            with pytest.raises(SnapshotConflict):
                write_snapshot(django_connection, "a", 1, 10, "Other text.")
            assert active(engine, "a") == []
            transaction.commit()
        finally:
            transaction.set_autocommit(True)
        assert len(active(engine, "a")) == 1
        assert enqueued(hints, 0) == []

    def test_times_have_a_zone_even_where_django_uses_none(self) -> None:
        day = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
        with override_settings(USE_TZ=False, TIME_ZONE="America/New_York"):
            connections.close_all()
            write_snapshot(django_connection, "a", 1, 10, "Text.", started_at=day, ended_at=day)
            (node,) = active_nodes(django_connection, "a")
        connections.close_all()
        assert (node.started_at, node.ended_at) == (day, day)
        assert node.created_at.tzinfo is not None


@pytest.mark.parametrize("mode", ["conditional_savepoint", "create_savepoint", "rollback_only"])
def test_a_session_that_joined_a_transaction_of_its_connection_sends_nothing(
    mode: str, engine: Engine, hints: redis.Redis
) -> None:
    """The recipe of many test suites: what the session calls its commit, the connection rolls back."""
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(bind=connection, join_transaction_mode=mode) as session:  # type: ignore[arg-type]
            write_snapshot(session, "joined", 1, 10, "Text.")
            session.commit()
        outer.rollback()
    assert enqueued(hints, 0) == []
    assert active(engine, "joined") == []


def test_a_session_on_a_connection_of_its_own_sends(engine: Engine, hints: redis.Redis) -> None:
    with engine.connect() as connection, Session(bind=connection) as session:
        write_snapshot(session, "bound", 1, 10, "Text.")
        session.commit()
    assert enqueued(hints, 1) == ["bound"]


def test_a_refusal_carries_no_text_in_its_context_either(session: Session) -> None:
    write_snapshot(session, "a", 1, 10, "Text.")
    with pytest.raises(SnapshotConflict) as caught:
        write_snapshot(session, "a", 1, 10, "Something secret.")
    seen = caught.value
    while seen is not None:
        assert "secret" not in str(seen)
        seen = seen.__context__ or seen.__cause__


def test_a_pipeline_is_refused_in_one_sentence(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        with connection.pipeline(), pytest.raises(UnsupportedConnection, match="outside the pipeline"):
            write_snapshot(connection, "a", 1, 10, "Text.")
        assert write_snapshot(connection, "a", 1, 10, "Text.")


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_a_database_that_is_down_is_an_error_of_ours(driver: str) -> None:
    """asyncpg's is the bare ConnectionRefusedError of the socket."""
    url = f"postgresql://u@127.0.0.1:{free_port()}/d"
    with pytest.raises(DatabaseError, match="was not asked, or did not answer"):
        async_session(url, lambda calls: calls.write_snapshot("a", 1, 10, "Text."), driver)


@pytest.mark.parametrize("encoding", ["latin1", "sql_ascii"])
def test_a_connection_in_another_encoding_is_refused_in_one_sentence(database_url: str, encoding: str) -> None:
    with psycopg.connect(database_url, client_encoding=encoding) as connection:
        for call in (lambda: write_snapshot(connection, "a", 1, 10, "Text."), lambda: memory(connection, "a", 1000)):
            with pytest.raises(UnsupportedConnection, match=r"client_encoding is .*: use UTF8"):
                call()


def test_text_that_the_encoding_of_a_session_lacks_is_refused_in_one_sentence(database_url: str) -> None:
    engine = create_engine(database_url.replace("postgresql:", "postgresql+psycopg:") + "?client_encoding=latin1")
    with (
        Session(engine) as session,
        pytest.raises(UnsupportedConnection, match="lacks characters of the text") as caught,
    ):
        write_snapshot(session, "a", 1, 10, "\u65e5\u672c")
    assert caught.value.__context__ is None
    engine.dispose()
