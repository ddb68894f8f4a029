"""The four calls on each kind of connection: written, read, refused, rolled back, and what reaches the broker."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
import redis
from mneme_client import ActiveNode, InvalidInput, SnapshotConflict, enqueue
from sqlalchemy import Engine

from tests.client import backends
from tests.client.backends import Calls
from tests.support.broker import enqueued
from tests.support.snapshots import active

pytestmark = pytest.mark.usefixtures("django_db", "hints")

DAY = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
BIG = 2**62


def named(function: Any) -> str:
    return str(function.__name__)


every = pytest.mark.parametrize("backend", backends.ALL, ids=named)
transactional = pytest.mark.parametrize("backend", backends.TRANSACTIONAL, ids=named)
sending = pytest.mark.parametrize("backend", backends.SENDING, ids=named)
plain = pytest.mark.parametrize("backend", backends.PLAIN, ids=named)


@every
def test_what_is_written_is_read_back(backend: Any, database_url: str, engine: Engine) -> None:
    async def work(calls: Calls) -> tuple[UUID, UUID, list[ActiveNode], str]:
        late = await calls.write_snapshot("s", BIG, BIG + 9, "Later: \0the disk\ud800 was full.")
        early = await calls.write_snapshot(
            "s", 1, 10, "Zoë 🚀 moved the database.", started_at=DAY, ended_at=DAY + timedelta(hours=1), token_count=7
        )
        return early, late, await calls.active("s"), await calls.memory("s", 100_000)

    early, late, nodes, memory = backend(database_url, work)
    assert [(n.id, n.level, n.span_start, n.span_end, n.content) for n in nodes] == [
        (early, 1, 1, 10, "Zoë 🚀 moved the database."),
        (late, 1, BIG, BIG + 9, "Later: the disk was full."),
    ]
    assert type(early) is type(nodes[0].id) is UUID
    assert (nodes[0].started_at, nodes[0].ended_at) == (DAY, DAY + timedelta(hours=1))
    assert (nodes[1].started_at, nodes[0].model, nodes[0].degraded) == (None, None, False)
    assert nodes[0].created_at.tzinfo is not None
    assert memory.startswith(f"# Recent memory\n\n[2026-03-01, messages 1 to 10, node {early}]\nZoë 🚀")
    stored = active(engine, "s")
    assert [(n.id, n.content, n.reported_tokens, n.token_count) for n in stored] == [
        (early, nodes[0].content, 7, nodes[0].token_count),
        (late, nodes[1].content, None, nodes[1].token_count),
    ]
    assert "Zoë" not in repr(nodes)


@every
def test_the_same_again_is_the_same_node(backend: Any, database_url: str) -> None:
    async def work(calls: Calls) -> set[UUID]:
        return {await calls.write_snapshot("s", 1, 10, "The same.") for _ in range(3)}

    first = backend(database_url, work)
    assert len(first) == 1
    assert backend(database_url, work) == first


@every
def test_a_refused_write_leaves_the_transaction_usable(backend: Any, database_url: str, engine: Engine) -> None:
    secret = "a secret of the conversation"

    async def work(calls: Calls) -> None:
        await calls.write_snapshot("s", 1, 10, "Kept.")
        with pytest.raises(SnapshotConflict, match="session 's': messages 1 to 10 are already covered") as conflict:
            await calls.write_snapshot("s", 1, 10, secret)
        for arguments, reason in (
            (("s", 11, 20, " \u200b"), "the content is blank"),
            (("s", 11, 20, secret * 5000), "at most 32768 are allowed"),
            (("s", 20, 11, secret), "the span is reversed"),
        ):
            with pytest.raises(InvalidInput, match=reason) as refused:
                await calls.write_snapshot(*arguments)
            assert secret not in str(refused.value) + str(conflict.value)
            # The driver's error quotes parameters.
            assert refused.value.__suppress_context__ or refused.value.__context__ is None
        assert [node.content for node in await calls.active("s")] == ["Kept."]
        await calls.write_snapshot("s", 11, 20, "Kept too.")

    backend(database_url, work)
    assert [node.content for node in active(engine, "s")] == ["Kept.", "Kept too."]


@every
def test_a_refused_first_write_does_so_too(backend: Any, database_url: str, engine: Engine) -> None:
    async def work(calls: Calls) -> None:
        with pytest.raises(InvalidInput):
            await calls.write_snapshot("s", 1, 10, " ")
        await calls.write_snapshot("s", 1, 10, "Kept.")

    backend(database_url, work)
    assert len(active(engine, "s")) == 1


@transactional
def test_what_is_rolled_back_is_neither_kept_nor_sent(
    backend: Any, database_url: str, engine: Engine, hints: redis.Redis
) -> None:
    async def work(calls: Calls) -> None:
        await calls.write_snapshot("s", 1, 10, "Lost.")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        backend(database_url, work)
    assert active(engine, "s") == []
    assert enqueued(hints, 0) == []


@sending
def test_each_session_is_sent_once_and_after_the_commit(backend: Any, database_url: str, hints: redis.Redis) -> None:
    async def work(calls: Calls) -> None:
        for session_id, start in (("a", 1), ("a", 11), ("b", 1)):
            await calls.write_snapshot(session_id, start, start + 9, "Text.")
        assert enqueued(hints, 0) == []

    backend(database_url, work)
    assert sorted(set(enqueued(hints, 2))) == ["a", "b"]


def test_under_django_each_write_from_a_coroutine_is_sent(database_url: str, hints: redis.Redis) -> None:
    async def work(calls: Calls) -> None:
        await calls.write_snapshot("a", 1, 10, "Text.")
        assert enqueued(hints, 1) == ["a"]

    backends.async_django(database_url, work)


@plain
def test_a_plain_connection_sends_nothing_and_its_user_does(
    backend: Any, database_url: str, hints: redis.Redis
) -> None:
    async def work(calls: Calls) -> None:
        await calls.write_snapshot("a", 1, 10, "Text.")

    backend(database_url, work)
    assert enqueued(hints, 0) == []
    assert enqueue("a")
    assert enqueued(hints, 1) == ["a"]


@every
def test_an_empty_memory_is_empty(backend: Any, database_url: str) -> None:
    async def work(calls: Calls) -> tuple[list[ActiveNode], str]:
        with pytest.raises(InvalidInput, match="token_budget must be 0 or more"):
            await calls.memory("unknown", -1)
        return await calls.active("unknown"), await calls.memory("unknown", 100)

    assert backend(database_url, work) == ([], "")
