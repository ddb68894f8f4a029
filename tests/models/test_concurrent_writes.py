"""write_l1_snapshot from many sessions at once."""

import threading
import time

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

WRITE = text("select mneme.write_l1_snapshot('s', 1, 9, :content)")


def test_the_same_snapshot_from_many_at_once_is_one_row(engine: Engine) -> None:
    barrier = threading.Barrier(8)
    ids: list[object] = []

    def write() -> None:
        with engine.begin() as connection:
            barrier.wait()
            ids.append(connection.execute(WRITE, {"content": "Hello."}).scalar_one())

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(ids) == 8
    assert len(set(ids)) == 1


def test_a_second_writer_waits_for_the_first_and_then_sees_its_text(engine: Engine) -> None:
    with engine.connect() as first, engine.connect() as second:
        written = first.execute(WRITE, {"content": "Hello."}).scalar_one()
        results: list[object] = []

        def write() -> None:
            results.append(second.execute(WRITE, {"content": "Hello."}).scalar_one())

        thread = threading.Thread(target=write)
        thread.start()
        time.sleep(0.3)
        assert results == []
        first.commit()
        thread.join(10)
        assert results == [written]


def test_under_repeatable_read_an_invisible_other_writer_means_try_again(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("insert into mneme.sessions (id) values ('s')"))
    with engine.connect() as reader, engine.connect() as writer:
        reader.execution_options(isolation_level="REPEATABLE READ")
        reader.execute(text("select 1 from mneme.sessions"))
        writer.execute(WRITE, {"content": "Hello."})
        writer.commit()
        with pytest.raises(DBAPIError, match="being written by another transaction; try again"):
            reader.execute(WRITE, {"content": "Hello."})
