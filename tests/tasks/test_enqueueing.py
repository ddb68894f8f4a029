"""Enqueueing: after the outermost commit, without waiting, whatever the broker does."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from models import InvalidNode, SettingsError, SummaryDAGStore, load_settings
from models.settings import Settings
from tasks import enqueue_job, enqueue_on_commit
from tasks.enqueueing import Publisher
from tests.support.broker import enqueued, own_redis
from tests.support.processes import ROOT, clean_environ, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import snapshot


@pytest.fixture
def factory(engine: Engine, settings: Settings, broker: redis.Redis) -> sessionmaker[Session]:
    factory = sessionmaker(engine)
    enqueue_on_commit(factory, settings=settings)
    return factory


def test_one_hint_a_session_after_the_commit(factory: sessionmaker[Session], broker: redis.Redis) -> None:
    with factory() as session:
        for name, number in (("a", 0), ("a", 1), ("b", 0)):
            SummaryDAGStore(session).insert_node(snapshot(name, number))
        time.sleep(0.3)
        assert broker.llen("mneme") == 0
        session.commit()
        assert enqueued(broker, 2) == ["a", "b"]
        session.commit()
        assert enqueued(broker, 2) == ["a", "b"]


def test_a_released_savepoint_is_no_commit(factory: sessionmaker[Session], broker: redis.Redis) -> None:
    with factory() as session:
        with session.begin_nested():
            SummaryDAGStore(session).insert_node(snapshot("a", 0))
        assert enqueued(broker, 0) == []
        session.rollback()
        assert enqueued(broker, 0) == []
        session.commit()
        assert enqueued(broker, 0) == []


def test_a_savepoint_that_fails_does_not_lose_the_rest(factory: sessionmaker[Session], broker: redis.Redis) -> None:
    with factory() as session, session.begin():
        store = SummaryDAGStore(session)
        store.insert_node(snapshot("a", 0))
        with pytest.raises(InvalidNode):
            store.insert_node(snapshot("a", 0))
        nested = session.begin_nested()
        store.insert_node(snapshot("b", 0))
        nested.rollback()
        store.insert_node(snapshot("c", 0))
    assert set(enqueued(broker, 2)) >= {"a", "c"}


def test_a_transaction_that_fails_enqueues_nothing(factory: sessionmaker[Session], broker: redis.Redis) -> None:
    def fails() -> None:
        with factory.begin() as session:
            SummaryDAGStore(session).insert_node(snapshot("a", 0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with factory.begin() as session:
        SummaryDAGStore(session).insert_node(snapshot("b", 0))
    assert enqueued(broker, 1) == ["b"]


def test_a_message_carries_the_session_id_and_nothing_else(settings: Settings, broker: redis.Redis) -> None:
    assert enqueue_job("séssion 🚀", settings=settings)
    assert enqueued(broker, 1) == ["séssion 🚀"]
    message = json.loads(broker.lindex("mneme", 0))  # type: ignore[arg-type]
    assert message["headers"]["task"] == "mneme.job"
    assert message["content-type"] == "application/json"


@contextmanager
def frozen_redis(log: Path) -> Iterator[str]:
    """A Redis that accepts connections and never answers."""
    with own_redis(log) as server:
        server.freeze()
        yield server.url


@pytest.mark.parametrize("kind", ["down", "frozen"])
def test_a_broker_that_does_not_answer_costs_the_caller_nothing(
    kind: str, environ: dict[str, str], engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with frozen_redis(tmp_path / "redis.log") as frozen:
        url = frozen if kind == "frozen" else f"redis://127.0.0.1:{free_port()}/0"
        settings = load_settings(environ | {"REDIS_URL": url})
        factory = sessionmaker(engine)
        enqueue_on_commit(factory, settings=settings)
        for number in range(20):
            with factory() as session:
                SummaryDAGStore(session).insert_node(snapshot("s", number))
                began = time.monotonic()
                session.commit()
                assert time.monotonic() - began < 0.2
        wait_until(lambda: "the sweep" in caplog.text, 20, "a warning")
        assert "broker took no job" in caplog.text
        assert len([r for r in caplog.records if r.levelname == "WARNING" and r.name == "mneme.enqueue"]) <= 2


def test_the_queue_of_hints_is_bounded(
    environ: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with frozen_redis(tmp_path / "redis.log") as url:
        publisher = Publisher(load_settings(environ | {"REDIS_URL": url}), queue_length=5)
        began = time.monotonic()
        taken = [publisher.put(f"s{n}") for n in range(50)]
        assert time.monotonic() - began < 0.2
        assert sum(taken) <= 6
        assert "queue of hints is full" in caplog.text


SCRIPT = """
import os, sys
from models import load_settings
from tasks import enqueue_job
enqueue_job("parent")
if sys.argv[1] == "fork":
    if os.fork() == 0:
        enqueue_job("child")
        sys.exit(0)
    os.wait()
"""


@pytest.mark.parametrize(("how", "expected"), [("once", ["parent"]), ("fork", ["child", "parent"])])
def test_a_script_that_ends_at_once_and_a_forked_child_are_heard(
    environ: dict[str, str], broker: redis.Redis, how: str, expected: list[str]
) -> None:
    script = [sys.executable, "-W", "error", "-c", SCRIPT, how]
    done = subprocess.run(script, env=clean_environ(environ), cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert enqueued(broker, len(expected)) == expected


def test_without_a_broker_the_first_call_says_so(environ: dict[str, str]) -> None:
    settings = load_settings({k: v for k, v in environ.items() if k != "REDIS_URL"})
    with pytest.raises(SettingsError, match=r"broker\.url is not set: set REDIS_URL"):
        enqueue_job("s", settings=settings)
    with pytest.raises(SettingsError, match="REDIS_URL"):
        enqueue_on_commit(sessionmaker(), settings=settings)
    assert os.environ.get("REDIS_URL") is None


def test_what_cannot_be_a_session_id_is_refused_at_once(settings: Settings) -> None:
    with pytest.raises(InvalidNode):
        enqueue_job("", settings=settings)
