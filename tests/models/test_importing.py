"""Importing in batches: the order, the counts, and that one bad line costs no other."""

import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from models import StorageError, importing
from models.importing import BATCH_LINES, Imported, import_snapshots
from tests.support.snapshots import active


def line(number: int, session_id: str = "s", **values: Any) -> str:
    told = {"session_id": session_id, "span_start": number, "span_end": number, "content": f"Fact {number}."}
    return json.dumps(told | values)


def file(*lines: str) -> io.BytesIO:
    return io.BytesIO("".join(f"{each}\n" for each in lines).encode())


def total(batches: list[Imported]) -> tuple[int, int, list[int]]:
    return (
        sum(batch.written for batch in batches),
        sum(batch.already_there for batch in batches),
        [refused.line for batch in batches for refused in batch.refused],
    )


def run(engine: Engine, *lines: str) -> list[Imported]:
    return list(import_snapshots(engine, file(*lines)))


def test_batches_are_committed_one_by_one(engine: Engine, scalar: Callable[..., Any]) -> None:
    count = 2 * BATCH_LINES + 5
    counts = []
    stream = file(*(line(n) for n in range(count)))
    size = len(stream.getvalue())
    batches = []
    for batch in import_snapshots(engine, stream):
        batches.append(batch)
        counts.append(scalar("select count(*) from mneme.summary_nodes"))
    assert counts == [BATCH_LINES, 2 * BATCH_LINES, count]
    assert total(batches) == (count, 0, [])
    assert sum(batch.size for batch in batches) == size
    assert [n.span_start for n in active(engine, "s")] == list(range(count))


def test_created_in_the_order_of_the_lines(engine: Engine, scalar: Callable[..., Any]) -> None:
    numbers = [5, 3, 9, 1, 7]
    run(engine, *(line(n) for n in numbers))
    found = scalar("select array_agg(span_start order by created_at) from mneme.summary_nodes")
    assert found == numbers


def test_again_writes_nothing(engine: Engine) -> None:
    lines = [line(n, f"s{n % 3}") for n in range(100)]
    assert total(run(engine, *lines)) == (100, 0, [])
    again = run(engine, *lines)
    assert total(again) == (0, 100, [])
    assert set().union(*(batch.session_ids for batch in again)) == {"s0", "s1", "s2"}


def test_equal_lines_of_one_batch_count_once_as_written(engine: Engine) -> None:
    assert total(run(engine, line(1), line(2), line(1), line(1))) == (2, 2, [])


def test_other_content_is_refused_and_the_rest_of_the_batch_written(engine: Engine) -> None:
    run(engine, line(2))
    batches = run(
        engine, line(1), line(2, content="Another fact."), "nonsense", line(3), line(3, content="Other."), line(4)
    )
    assert total(batches) == (3, 0, [2, 3, 5])
    assert [refused.reason for refused in batches[0].refused] == [
        "messages 2 to 2 of its session already have a snapshot with other content",
        "the line is not JSON: it goes wrong at column 1",
        "messages 3 to 3 of its session already have a snapshot with other content",
    ]
    assert [node.content for node in active(engine, "s")] == ["Fact 1.", "Fact 2.", "Fact 3.", "Fact 4."]


def test_a_session_with_nothing_but_refused_lines_is_not_named(engine: Engine) -> None:
    run(engine, line(1, "a"))
    (batch,) = run(engine, line(1, "a", content="Other."), line(1, "b"), line(1, "", content="x"))
    assert batch.session_ids == {"b"}


def test_blank_lines_count_for_nothing(engine: Engine) -> None:
    assert total(run(engine, "", line(1), "  ", "nonsense", "")) == (1, 0, [4])


def test_an_empty_file_has_no_batches(engine: Engine) -> None:
    assert run(engine) == []


def test_two_imports_of_one_file_at_once_write_it_once(engine: Engine, scalar: Callable[..., Any]) -> None:
    lines = [line(n, f"s{n % 7}") for n in range(300)]
    orders = [lines, lines[::-1], lines]
    results: list[tuple[int, int, list[int]]] = []

    def one(mine: list[str]) -> None:
        results.append(total(run(engine, *mine)))

    threads = [threading.Thread(target=one, args=(mine,)) for mine in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [written + there for written, there, _ in results] == [300] * 3
    assert all(refused == [] for _, _, refused in results)
    assert scalar("select count(*) from mneme.summary_nodes") == 300


def test_what_may_pass_is_tried_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "FIRST_PAUSE_SECONDS", 0.001)
    write, failures = importing._write_at_once, []

    def fails_twice(*arguments: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            with engine.begin() as connection, pytest.raises(OperationalError) as caught:
                connection.execute(text("do $$ begin raise exception 'x' using errcode = '40P01'; end $$"))
            raise importing_error(caught.value)
        return write(*arguments)

    monkeypatch.setattr(importing, "_write_at_once", fails_twice)
    assert total(run(engine, line(1))) == (1, 0, [])
    assert len(failures) == 2


def importing_error(error: OperationalError) -> StorageError:
    from models.engine import storage_error

    return storage_error(error)


def test_a_database_that_refuses_everything_is_no_fault_of_the_lines(
    engine: Engine, scalar: Callable[..., Any]
) -> None:
    scalar("alter table mneme.messages rename to hidden")
    try:
        with pytest.raises(StorageError, match="42P01"):
            run(engine, line(1))
    finally:
        scalar("alter table mneme.hidden rename to messages")
