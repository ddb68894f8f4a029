"""The log: one line an event, with the ids of the job, and nothing in it that must not be."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from models import load_settings
from tasks.broker import publish
from tasks.events import Event, within
from tests.support import model_server as says
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import celery, celery_worker, debugged_worker, log_lines, process, results, run, wait_until
from tests.support.snapshots import active, all_runs, content, write
from worker.logs import Formatter, _is_news, known_secrets

KEY = "sk-planted-0123456789"
PASSWORD = "p%40ssw%3Ard-planted"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        server.answer = says.saves("Short.")
        yield server


@pytest.fixture
def asking(environ: dict[str, str], server: ModelServer) -> dict[str, str]:
    return environ | {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY}


def line(message: object, *arguments: object, secrets: frozenset[str] = frozenset(), as_json: bool = True) -> Any:
    record = logging.LogRecord("mneme.x", logging.INFO, "f.py", 1, message, arguments, None)  # type: ignore[arg-type]
    text = Formatter(as_json=as_json, secrets=secrets).format(record)
    return json.loads(text) if as_json else text


def test_an_event_keeps_its_fields_and_the_ids_of_its_job() -> None:
    with within(session="s-1", run="r-1"):
        told = line(Event("fold ends", outcome="folded", prompt_tokens=7, node=None))
    assert list(told)[:3] == ["timestamp", "level", "event"]
    del told["timestamp"]
    assert told == {
        "level": "info", "event": "fold ends", "logger": "mneme.x", "session": "s-1", "run": "r-1",
        "outcome": "folded", "prompt_tokens": 7, "node": None,
    }  # fmt: skip
    assert "session" not in line("afterwards")


def test_an_event_without_such_a_formatter_is_text() -> None:
    assert str(Event("fold ends", outcome="folded", tokens=7)) == "fold ends: outcome=folded tokens=7"
    assert str(Event("broken")) == "broken"


def test_hostile_values_stay_on_one_line() -> None:
    for as_json in (True, False):
        text = Formatter(as_json=as_json).format(
            logging.LogRecord("x", 20, "f", 1, Event("failed", error="a\nb\0\ud800\x1b[31m"), (), None)
        )
        assert "\n" not in text
        assert "\x1b" not in text
        text.encode()


def test_secrets_are_taken_out_wherever_they_came_from() -> None:
    environ = {
        "DATABASE_URL": f"postgresql://u:{PASSWORD}@h/d", "REDIS_URL": "redis://:redis-planted@h/0",
        "OPENAI_API_KEY": KEY, "MNEME_LLM__HEADERS": '{"x-key": "header\\"planted"}',
    }  # fmt: skip
    secrets = known_secrets(load_settings(environ), environ)
    assert {KEY, PASSWORD, "p@ssw:rd-planted", "redis-planted", 'header"planted'} <= secrets
    for secret in secrets:
        for as_json in (True, False):
            assert "planted" not in str(line("it said: %s", secret, secrets=secrets, as_json=as_json))
    # A password that is a word would take words out of every line.
    assert line("the redis is away", secrets=frozenset({"redis"}))["event"] == "the redis is away"


def test_a_message_that_could_not_be_acknowledged_calls_nobody() -> None:
    """Kombu says *critical*, with a stack, of each job that ended while its broker was away."""
    record = logging.LogRecord("kombu", logging.CRITICAL, "f.py", 1, "Couldn't ack %r, reason:%r", (1, "x"), None)
    record.exc_info = (ValueError, ValueError("x"), None)
    assert _is_news(record)
    assert (record.levelname, record.exc_info) == ("WARNING", None)


def test_a_day_of_normal_work_is_a_few_lines_in_json(
    engine: Engine, asking: dict[str, str], broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    quick = asking | {"MNEME_SCHEDULES__SWEEP_SECONDS": "1"}
    with (
        celery_worker(quick, tmp_path / "worker.log") as worker,
        process(celery("beat", "-l", "info"), quick, tmp_path / "beat.log") as beat,
    ):
        for _ in range(50):
            publish(load_settings(asking), "s")
        wait_until(lambda: [n.level for n in active(engine, "s")] == [2])
        wait_until(lambda: broker.llen("mneme") == 0)
        wait_until(lambda: "fold ends" in worker.log)
        of_worker, of_beat = log_lines(worker.log), log_lines(beat.log)
    assert results(worker.log) == []
    mine = [told for told in of_worker if told["logger"] == "mneme.job"]
    assert [told["event"] for told in mine] == ["fold begins", "fold ends"]
    (folded,) = all_runs(engine, "s")
    for told in mine:
        assert (told["session"], told["run"], told["task_name"]) == ("s", str(folded.id), "mneme.job")
        assert len(told["task"]) == 36
    assert len(of_worker) < 10, of_worker
    assert len(of_beat) < 5, of_beat


def test_failures_are_warnings_and_are_told_once(
    engine: Engine, asking: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    server.answer = says.fails(401)
    with celery_worker(asking, tmp_path / "worker.log") as worker:
        publish(load_settings(asking), "s")
        wait_until(lambda: "fold failed" in worker.log)
        publish(load_settings(asking), "\0")
        worker.wait_for_log("raised expected")
        lines = log_lines(worker.log)
    warned = [told for told in lines if told["level"] == "warning"]
    assert [told["event"] for told in warned[:2]] == ["fold failed", "breaker opened"]
    assert warned[0]["kind"] == "configuration"
    assert "check OPENAI_API_KEY" in warned[0]["error"]
    assert len(warned) == 3
    assert "InvalidNode" in warned[2]["event"]
    assert warned[2]["task"] != warned[0]["task"]
    assert KEY not in worker.log


def test_nothing_planted_is_in_a_log_at_debug(
    engine: Engine, asking: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    server.answer = says.fails(401, "invalid_api_key " + KEY)
    with debugged_worker(asking, tmp_path / "worker.log") as worker:
        publish(load_settings(asking), "s")
        wait_until(lambda: "fold failed" in worker.log)
    (failed,) = all_runs(engine, "s")
    for told in (worker.log, failed.error or ""):
        assert KEY not in told
        assert content("s", 1)[:25] not in told


def test_a_wish_for_text_is_granted_and_a_wrong_one_refused(
    environ: dict[str, str], broker: redis.Redis, tmp_path: Path
) -> None:
    with celery_worker(environ | {"MNEME_WORKER__LOG_FORMAT": "text"}, tmp_path / "worker.log") as worker:
        assert "[info     ] worker@test ready." in worker.log
        assert "\x1b[" not in worker.log.split("ready.")[1]
    done = run(celery("worker"), environ | {"MNEME_WORKER__LOG_FORMAT": "xml"})
    assert done.returncode == 2
    assert "worker.log_format" in done.stderr


def test_a_log_file_that_was_moved_away_is_opened_anew(
    environ: dict[str, str], broker: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "file.log"
    command = celery("worker", "-l", "info", "-f", str(log), "--without-mingle", "--without-gossip")
    with process(command, environ, tmp_path / "stderr.log"):
        wait_until(lambda: log.exists() and "ready." in log.read_text(), 60)
        log.rename(tmp_path / "file.log.1")
        publish(load_settings(environ), "\0")
        wait_until(lambda: log.exists() and "InvalidNode" in log.read_text(), 30)
    assert all(told["timestamp"] for told in log_lines(log.read_text()))


@pytest.mark.parametrize("role", ["worker", "beat"])
def test_a_log_file_that_cannot_be_written_is_refused(environ: dict[str, str], broker: redis.Redis, role: str) -> None:
    done = run(celery(role, "--logfile", "/proc/log"), environ)
    assert done.returncode == 2
    assert "mneme: the log file /proc/log cannot be written: No such file or directory\n" in done.stderr
    assert "Traceback" not in done.stderr
