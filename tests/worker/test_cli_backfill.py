"""``mneme backfill`` as a process: all that is due is folded, within limits, and an interruption leaves nothing half done."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from models import load_settings
from models.doctor import diagnose
from tests.models.test_claims import must_claim
from tests.support import model_server as says
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import celery_worker, mneme, process, run, wait_until
from tests.support.snapshots import active, all_runs, write
from tests.support.terminal import on_terminal

SESSIONS = [f"s{number:02}" for number in range(12)]
CALL_TOKENS = 740


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        server.answer = says.saves("Short.", after_seconds=0.3)
        yield server


@pytest.fixture
def asking(environ: dict[str, str], server: ModelServer) -> dict[str, str]:
    return environ | {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url}


def levels(engine: Engine, session_id: str) -> list[int]:
    return [node.level for node in active(engine, session_id)]


def clean(engine: Engine, environ: dict[str, str]) -> bool:
    return not any(finding.violations for finding in diagnose(engine, load_settings(environ)))


def test_history_is_folded_without_queue_or_worker(
    engine: Engine, asking: dict[str, str], server: ModelServer, broker: redis.Redis
) -> None:
    write(engine, "long", range(53))
    for session_id in SESSIONS[:3]:
        write(engine, session_id, range(6))
    write(engine, "too few", range(4))
    done = run(mneme("backfill", "--json"), asking)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    folds = len(server.calls)
    assert result == {
        "sessions": 4, "of": 4, "folds": folds, "tokens": folds * CALL_TOKENS, "others": {}, "stopped": None,
    }  # fmt: skip
    assert levels(engine, "s00") == [2]
    assert len(levels(engine, "long")) < 10
    assert levels(engine, "too few") == [1] * 4
    assert broker.llen("mneme") == 0
    assert clean(engine, asking)
    again = run(mneme("backfill"), asking)
    assert (again.returncode, again.stdout) == (0, "0 of 0 sessions, 0 folds, 0 tokens\n")


def test_no_more_at_once_than_asked_for(engine: Engine, asking: dict[str, str], server: ModelServer) -> None:
    for session_id in SESSIONS:
        write(engine, session_id, range(5))
    most = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.01):
            most = max(most, server.under_way)

    watcher = threading.Thread(target=watch)
    watcher.start()
    done = run(mneme("backfill", "--concurrency", "3"), asking)
    ended.set()
    watcher.join()
    assert done.returncode == 0
    assert most == 3
    assert done.stdout == f"12 of 12 sessions, 12 folds, {12 * CALL_TOKENS:,} tokens\n"


def test_tokens_are_limited(engine: Engine, asking: dict[str, str], server: ModelServer) -> None:
    for session_id in SESSIONS:
        write(engine, session_id, range(5))
    done = run(mneme("backfill", "--concurrency", "2", "--tokens", str(3 * CALL_TOKENS)), asking)
    assert done.returncode == 1
    assert 3 <= len(server.calls) <= 4
    assert f"tokens were spent, of {3 * CALL_TOKENS:,} allowed" in done.stdout
    assert run(mneme("backfill"), asking).returncode == 0
    assert len(server.calls) == 12


def test_a_limit_that_is_reached_by_the_last_fold_stops_nothing(
    engine: Engine, asking: dict[str, str], server: ModelServer
) -> None:
    write(engine, "s00", range(5))
    done = run(mneme("backfill", "--tokens", "1"), asking)
    assert (done.returncode, done.stdout) == (0, f"1 of 1 sessions, 1 folds, {CALL_TOKENS} tokens\n")


def test_named_sessions_alone_and_what_is_in_the_way(
    engine: Engine, asking: dict[str, str], server: ModelServer, scalar: Callable[..., Any]
) -> None:
    for session_id in SESSIONS[:4]:
        write(engine, session_id, range(5))
    scalar("update mneme.sessions set paused_at = now() where id = 's01'")
    must_claim(engine, "s02")
    done = run(mneme("backfill", "s00", "s01", "s02", "s00"), asking)
    assert done.returncode == 1
    assert "3 of 3 sessions, 1 folds" in done.stdout
    assert "1 are paused: mneme resume\n" in done.stdout
    assert "1 are being folded by a worker\n" in done.stdout
    assert levels(engine, "s03") == [1] * 5
    missing = run(mneme("backfill", "s00", "no such"), asking)
    assert (missing.returncode, missing.stderr) == (1, "mneme: there is no session 'no such'\n")
    for wrong in (["--concurrency", "0"], ["--tokens", "x"]):
        assert run(mneme("backfill", *wrong), asking).returncode == 2
    assert run(mneme("backfill"), {"DATABASE_URL": asking["DATABASE_URL"]}).returncode == 2


def test_a_wrong_key_ends_it_at_once(engine: Engine, asking: dict[str, str], server: ModelServer) -> None:
    for session_id in SESSIONS:
        write(engine, session_id, range(5))
    server.answer = says.fails(401)
    done = run(mneme("backfill", "--concurrency", "2"), asking)
    assert done.returncode == 1
    assert "stopped: " in done.stdout
    assert "OPENAI_API_KEY" in done.stdout
    assert len(server.calls) <= 3
    assert "Traceback" not in done.stderr


def test_an_interruption_leaves_nothing_half_done(
    engine: Engine, asking: dict[str, str], server: ModelServer, tmp_path: Path
) -> None:
    for session_id in SESSIONS:
        write(engine, session_id, range(5))
    server.answer = lambda call: (says.saves("Short.") if call.number < 3 else says.saves("Late.", after_seconds=60))(
        call
    )
    with process(mneme("backfill", "--concurrency", "2"), asking, tmp_path / "log") as running:
        server.wait_for_calls(4)
        began = time.monotonic()
        running.popen.send_signal(signal.SIGINT)
        wait_until(lambda: running.popen.poll() is not None, 20)
        assert time.monotonic() - began < 10
        assert running.popen.returncode == 130
        assert "interrupted: what ran was let go of" in running.log
        assert "Traceback" not in running.log
    states = [row.state for session_id in SESSIONS for row in all_runs(engine, session_id)]
    assert sorted(states) == ["released", "released", "succeeded", "succeeded"]
    server.answer = says.saves("Short.")
    assert run(mneme("backfill"), asking).returncode == 0  # at once: what was let go of waits for no lease
    assert all(levels(engine, session_id) == [2] for session_id in SESSIONS)
    assert clean(engine, asking)


def test_workers_may_fold_meanwhile(
    engine: Engine, asking: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    for session_id in SESSIONS:
        write(engine, session_id, range(5))
    with celery_worker(asking, tmp_path / "worker.log"):
        assert run(mneme("enqueue", *SESSIONS), asking).returncode == 0
        done = run(mneme("backfill"), asking)
        wait_until(lambda: all(levels(engine, session_id) == [2] for session_id in SESSIONS))
    assert done.returncode in (0, 1)
    assert len(server.calls) == 12
    assert clean(engine, asking)


def test_a_bar_on_a_terminal(engine: Engine, asking: dict[str, str]) -> None:
    for session_id in SESSIONS[:4]:
        write(engine, session_id, range(5))
    shown = on_terminal(mneme("backfill"), asking)
    assert "folding" in shown
    assert "100%" in shown
    assert "4 of 4 sessions, 4 folds" in shown
