"""Sending: the message that the worker knows, to the right broker, and never at the caller's cost."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import mneme_client
import pytest
import redis
from mneme_client import ConfigurationError, InvalidInput, configure, enqueue, write_snapshot
from mneme_client.outbox import Outbox, outbox
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from models.settings import Settings
from tasks.broker import publish
from tests.support.broker import body, enqueued, messages, own_redis
from tests.support.processes import clean_environ, run, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import active


def test_the_message_is_the_services_own(hints: redis.Redis, settings: Settings) -> None:
    publish(settings, "séssion 🚀")
    assert enqueue("séssion 🚀")
    ours, theirs = messages(hints, 2)
    assert body(ours) == body(theirs)
    assert body(ours)[:2] == [[], {"session_id": "séssion 🚀"}]
    for same in ("content-type", "content-encoding"):
        assert ours[same] == theirs[same]
    own = ("id", "root_id", "origin", "stamps")
    assert {k: v for k, v in ours["headers"].items() if k not in own} == {
        k: v for k, v in theirs["headers"].items() if k not in own
    }
    assert ours["headers"]["task"] == "mneme.job"
    assert ours["properties"]["delivery_info"] == theirs["properties"]["delivery_info"]


def test_configure_goes_before_the_environment(
    hints: redis.Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    configure(broker_url=redis_url)
    assert enqueue("s")
    assert enqueued(hints, 1) == ["s"]


def test_the_main_apps_own_celery_broker_is_not_taken_for_mnemes(
    hints: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_WRITE_URL"):
        monkeypatch.setenv(name, f"redis://127.0.0.1:{free_port()}/0")
    assert enqueue("s")
    assert enqueued(hints, 1) == ["s"]


@pytest.mark.parametrize(
    "url", ["", "http://h", "redis://", "redis://h:port", "redis://:secret@", "redis+socket://", "secret"]
)
def test_a_url_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a URL such as redis://") as refused:
        configure(broker_url=url)
    assert "secret" not in str(refused.value)


def test_without_a_broker_enqueue_says_so_and_a_write_only_warns(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    with pytest.raises(ConfigurationError, match="set REDIS_URL"):
        enqueue("s")
    outbox.forget()
    with Session(engine) as session, session.begin():
        write_snapshot(session, "s", 1, 10, "Text.")
    assert len(active(engine, "s")) == 1
    assert "no broker is set" in caplog.text


def test_what_cannot_be_a_session_id_is_refused(hints: redis.Redis) -> None:
    for wrong in ("", "x" * 256, "\0", None):
        with pytest.raises(InvalidInput):
            enqueue(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["down", "frozen", "frozen while connected"])
def test_a_broker_that_does_not_answer_costs_the_caller_nothing(
    kind: str, engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox.forget()
    caplog.set_level(logging.WARNING)
    with own_redis(tmp_path / "redis.log") as own:
        configure(broker_url=own.url if kind != "down" else f"redis://127.0.0.1:{free_port()}/0")
        if kind == "frozen while connected":
            enqueue("s")
            assert outbox.flush(5)
        if kind != "down":
            own.freeze()
        slowest = 0.0
        for number in range(50):
            with Session(engine) as session:
                write_snapshot(session, "s", number * 10, number * 10 + 9, "Text.")
                began = time.monotonic()
                session.commit()
                slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.1
        wait_until(lambda: "the broker took no job" in caplog.text, 20, "a warning")
        assert len([r for r in caplog.records if r.name == "mneme_client"]) == 1
        own.thaw()
        wait_until(lambda: outbox.flush(0.1), 20, "the rest of the hints")
        configure(broker_url=own.url)
        assert enqueue("afterwards")
        client = redis.Redis.from_url(own.url)
        assert "afterwards" in enqueued(client, 1)
        client.close()


def test_the_queue_of_hints_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with own_redis(tmp_path / "redis.log") as own:
        own.freeze()
        small = Outbox(queue_length=5)
        began = time.monotonic()
        taken = [small.put(own.url, f"s{number}") for number in range(50)]
        assert time.monotonic() - began < 0.2
        assert sum(taken) <= 6
        assert "the queue of hints is full" in caplog.text


def test_many_writes_to_a_session_make_few_messages(tmp_path: Path) -> None:
    with own_redis(tmp_path / "redis.log") as own:
        own.freeze()
        small = Outbox(queue_length=5)
        assert all(small.put(own.url, "s") for _ in range(1000))
        own.thaw()
        assert small.flush(10)
        client = redis.Redis.from_url(own.url)
        assert 1 <= len(enqueued(client, 1)) <= 3
        client.close()


SCRIPT = """
import os, sys
import mneme_client
from mneme_client.outbox import outbox
mneme_client.enqueue("parent")
if sys.argv[1] == "fork":
    assert outbox.flush(10)  # connected, which the child must not use
    outbox._lock.acquire()  # as another thread may hold it at the fork
    if os.fork() == 0:
        mneme_client.enqueue("child")
        sys.exit(0)
    outbox._lock.release()
    os.wait()
"""


def run_script(how: str, broker_url: str, tmp_path: Path) -> float:
    environ = clean_environ({"REDIS_URL": broker_url})
    command = [sys.executable, "-W", "error", "-c", SCRIPT, how]
    began = time.monotonic()
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return time.monotonic() - began


@pytest.mark.parametrize(("how", "expected"), [("once", ["parent"]), ("fork", ["child", "parent"])])
def test_a_script_that_ends_at_once_and_a_forked_child_are_heard(
    hints: redis.Redis, redis_url: str, how: str, expected: list[str], tmp_path: Path
) -> None:
    run_script(how, redis_url, tmp_path)
    assert enqueued(hints, len(expected)) == expected


def test_a_script_that_ends_waits_for_a_frozen_broker_a_few_seconds_at_most(tmp_path: Path) -> None:
    with own_redis(tmp_path / "redis.log") as own:
        without = run_script("once", own.url, tmp_path)  # what Python and its imports take just now
        own.freeze()
        assert run_script("once", own.url, tmp_path) - without < 6


def test_enqueue_under_asyncio_is_the_same_function() -> None:
    assert mneme_client.aio.enqueue is enqueue
    assert os.environ.get("REDIS_URL") is None


FORKS_WHILE_IT_SENDS = """
import os, sys, threading, time
import mneme_client
from mneme_client.outbox import outbox

stop = threading.Event()
def send():
    number = 0
    while not stop.is_set():
        mneme_client.enqueue(f"parent-{number % 50}")
        number += 1
        time.sleep(0.0003)
threading.Thread(target=send, daemon=True).start()
time.sleep(1)
stuck = 0
for _ in range(25):
    pid = os.fork()
    if pid == 0:
        mneme_client.enqueue("kid")
        os._exit(0 if outbox.flush(10) else 1)
    stuck += os.waitpid(pid, 0)[1] != 0
stop.set()
print("stuck:", stuck)
"""


def test_a_child_that_is_forked_while_its_parent_sends_can_send(hints: redis.Redis, redis_url: str) -> None:
    """As of a server that forks under load: a lock of Celery's that is held just then would stay held in the child."""
    done = run([sys.executable, "-W", "ignore", "-c", FORKS_WHILE_IT_SENDS], {"REDIS_URL": redis_url})
    assert done.stdout == "stuck: 0\n", done.stderr
