"""Transactions of our own: made anew after a conflict, and cut off where something is stuck."""

import threading
import time
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, text

from models import StorageError, make_engine, transaction, urls
from models.engine import in_transaction
from tests.support.snapshots import write


def _lock(connection: Connection, session_id: str) -> None:
    connection.execute(text("update mneme.sessions set enqueued_at = now() where id = :id"), {"id": session_id})


def test_a_deadlock_is_made_again_as_a_whole_transaction(engine: Engine) -> None:
    """FAILURES 41. Two that lock in opposite orders: Postgres ends one of them, and both are done in the end."""
    for session_id in ("a", "b"):
        write(engine, session_id, [1])
    both_hold_one = threading.Barrier(2, timeout=10)
    attempts: list[str] = []

    def lock(first: str, second: str) -> None:
        def work(connection: Connection) -> None:
            attempts.append(first)
            _lock(connection, first)
            if attempts.count(first) == 1:
                both_hold_one.wait()
            _lock(connection, second)

        in_transaction(engine, work)

    threads = [threading.Thread(target=lock, args=order) for order in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(attempts) in (["a", "a", "b"], ["a", "b", "b"])


def test_a_conflict_that_does_not_end_is_an_error(engine: Engine) -> None:
    attempts = []

    def work(connection: Connection) -> None:
        attempts.append(1)
        connection.execute(text("do $$ begin raise exception 'x' using errcode = 'serialization_failure'; end $$"))

    with pytest.raises(StorageError) as caught:
        in_transaction(engine, work)
    assert (len(attempts), caught.value.conflict, caught.value.transient) == (3, True, True)


def test_other_errors_are_not_made_again(engine: Engine) -> None:
    attempts = []

    def work(connection: Connection) -> None:
        attempts.append(1)
        connection.execute(text("select 1/0"))

    with pytest.raises(StorageError, match="division by zero"):
        in_transaction(engine, work)
    assert len(attempts) == 1


@pytest.mark.parametrize("stuck", ["statement", "lock"])
def test_what_is_stuck_is_cut_off(engine: Engine, stuck: str) -> None:
    write(engine, "s", [1])

    def wait() -> None:
        with transaction(engine, statement_seconds=1) as connection:
            if stuck == "lock":
                _lock(connection, "s")
            else:
                connection.execute(text("select pg_sleep(30)"))

    with engine.begin() as holder:
        _lock(holder, "s")
        began = time.monotonic()
        with pytest.raises(StorageError) as caught:
            wait()
        assert caught.value.transient
        assert time.monotonic() - began < 4


@pytest.mark.parametrize("style", ["German", "SQL, DMY", "Postgres, MDY"])
def test_the_style_of_dates_is_ours_whatever_the_roles_is(
    database_url: str, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    """A role's, a database's or PGDATESTYLE's own may be one that psycopg does not read."""
    monkeypatch.setenv("PGDATESTYLE", style)
    monkeypatch.setenv("PGOPTIONS", "-c IntervalStyle=sql_standard")
    other = make_engine(urls.database_url(database_url), pooled=False)
    with transaction(other) as connection:
        now, day = connection.execute(text("select clock_timestamp(), interval '1 day 2 hours'")).one()
    assert now.utcoffset() == timedelta(0)
    assert day == timedelta(days=1, hours=2)


def test_an_idle_transaction_is_ended_by_the_server(engine: Engine) -> None:
    """What holds for a process that is stopped inside its commit: its locks go with its transaction."""
    write(engine, "s", [1])

    def sleep_inside() -> None:
        with transaction(engine, statement_seconds=1) as idle:
            _lock(idle, "s")
            time.sleep(1.5)
            with transaction(engine) as other:
                _lock(other, "s")
            idle.execute(text("select 1"))

    with pytest.raises(StorageError) as caught:
        sleep_inside()
    assert caught.value.transient
