"""Real workers and a real beat: killed, frozen, cut off, and with an emptied broker."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from models import load_settings
from tasks.broker import get_producer, publish
from tests.support import model_server as says
from tests.support.model_server import Call, ModelServer
from tests.support.processes import celery, debugged_worker, process, results, run, wait_until
from tests.support.snapshots import active, all_runs, content, write


def folded(engine: Engine, session_id: str = "s") -> Callable[[], bool]:
    return lambda: [n.level for n in active(engine, session_id)] == [2]


# Without beat: what these tests show does not rest on the sweep.


def test_thirty_deliveries_to_two_workers_make_one_call_and_one_node(
    engine: Engine,
    worker_environ: dict[str, str],
    server: ModelServer,
    broker: redis.Redis,
    tmp_path: Path,
    scalar: Any,
) -> None:
    write(engine, "s", range(5))
    server.answer = says.saves("Short.", after_seconds=1)
    settings = load_settings(worker_environ)
    with (
        debugged_worker(worker_environ, tmp_path / "one.log") as one,
        debugged_worker(worker_environ, tmp_path / "two.log") as two,
    ):
        for _ in range(30):
            publish(settings, "s")
        wait_until(lambda: len(results(one.log)) + len(results(two.log)) == 30)
        outcomes = [result["outcome"] for result in results(one.log) + results(two.log)]
    assert len(server.calls) == 1
    assert outcomes.count("folded") == 1
    assert set(outcomes) <= {"folded", "already_running", "below_threshold"}
    assert scalar("select count(*) from mneme.summary_nodes where level = 2") == 1


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_folds_on_each_pool_without_an_open_transaction_during_the_call(
    pool: str,
    engine: Engine,
    worker_environ: dict[str, str],
    server: ModelServer,
    broker: redis.Redis,
    tmp_path: Path,
    scalar: Any,
) -> None:
    for number in range(6):
        write(engine, f"s{number}", range(5))
    seen: list[object] = []

    def look(call: Call) -> None:
        # Let the calls of several sessions be under way together: no connection is held by any of them.
        time.sleep(0.5)
        seen.append(
            scalar(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
                " and application_name = 'mneme' and xact_start is not null"
            )
        )
        says.saves("Short.")(call)

    server.answer = look
    settings = load_settings(worker_environ)
    environ = worker_environ | {"MNEME_WORKER__POOL": pool, "MNEME_WORKER__CONCURRENCY": "3"}
    with debugged_worker(environ, tmp_path / "worker.log") as worker:
        for number in range(6):
            publish(settings, f"s{number}")
        wait_until(lambda: len(results(worker.log)) == 6)
        assert [result["outcome"] for result in results(worker.log)] == ["folded"] * 6
    assert len(server.calls) == 6
    assert 0 in seen  # and never more than those who just claim or commit
    assert all(isinstance(count, int) and count <= 2 for count in seen)
    for number in range(6):
        assert len(active(engine, f"s{number}")) == 1


def test_the_pool_and_concurrency_come_from_the_settings(
    worker_environ: dict[str, str], broker: redis.Redis, tmp_path: Path
) -> None:
    with debugged_worker(worker_environ | {"MNEME_WORKER__CONCURRENCY": "3"}, tmp_path / "w.log") as worker:
        assert "concurrency: 3 (threads)" in worker.log
    more = {"MNEME_WORKER__CONCURRENCY": "2", "MNEME_WORKER__POOL": "prefork"}
    with debugged_worker(worker_environ | more, tmp_path / "v.log") as worker:
        assert "concurrency: 2 (prefork)" in worker.log


def test_sigterm_lets_the_running_fold_finish(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    server.answer = says.saves("Short.", after_seconds=1.5)
    with debugged_worker(worker_environ, tmp_path / "worker.log") as worker:
        publish(load_settings(worker_environ), "s")
        server.wait_for_calls(1)
        worker.popen.terminate()
        assert worker.popen.wait(15) == 0
        assert [result["outcome"] for result in results(worker.log)] == ["folded"]
    assert folded(engine)()
    assert len(server.calls) == 1


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_cold_shutdown_is_quick_releases_the_run_and_counts_for_nothing(
    pool: str, engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    server.answer = says.saves("Short.", after_seconds=15)
    environ = worker_environ | {"MNEME_LLM__TIMEOUT_SECONDS": "20", "MNEME_MNEME__LEASE_SECONDS": "40"}
    with debugged_worker(environ | {"MNEME_WORKER__POOL": pool}, tmp_path / "worker.log") as worker:
        publish(load_settings(environ), "s")
        server.wait_for_calls(1)
        worker.popen.send_signal(signal.SIGQUIT)
        worker.popen.wait(10)
        assert "Traceback" not in worker.log
    (released,) = all_runs(engine, "s")
    assert (released.state, released.crashes, released.node_id) == ("released", 0, None)
    assert released.retry_at is not None
    assert len(active(engine, "s")) == 5
    server.answer = says.saves("Short.")
    with debugged_worker(environ, tmp_path / "again.log"):
        publish(load_settings(environ), "s")
        wait_until(folded(engine))
    assert all_runs(engine, "s")[-1].attempt == 1


def test_a_killed_worker_is_followed_by_another_after_the_lease_once(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    server.answer = lambda call: says.saves(f"By call {call.number}.", after_seconds=2 if call.number == 1 else 0)(call)
    with debugged_worker(worker_environ, tmp_path / "one.log") as one:
        publish(load_settings(worker_environ), "s")
        server.wait_for_calls(1)
        one.send(signal.SIGKILL)
        one.popen.wait(10)
    with (
        debugged_worker(worker_environ, tmp_path / "two.log"),
        process(celery("beat"), worker_environ, tmp_path / "beat.log"),
    ):
        wait_until(folded(engine), 30)
    first, second = all_runs(engine, "s")
    assert (first.state, first.crashes) == ("expired", 1)
    assert (second.state, second.attempt, second.crashes) == ("succeeded", 2, 0)
    assert second.started_at >= first.lease_expires_at
    assert len(server.calls) == 2
    assert [n.content for n in active(engine, "s")] == ["By call 2."]


def test_a_worker_frozen_past_its_lease_writes_nothing_when_it_wakes(
    engine: Engine,
    worker_environ: dict[str, str],
    server: ModelServer,
    broker: redis.Redis,
    tmp_path: Path,
    scalar: Any,
) -> None:
    write(engine, "s", range(5))
    server.answer = lambda call: says.saves(f"By call {call.number}.", after_seconds=1 if call.number == 1 else 0)(call)
    settings = load_settings(worker_environ)
    with debugged_worker(worker_environ, tmp_path / "one.log") as one:
        publish(settings, "s")
        server.wait_for_calls(1)
        one.send(signal.SIGSTOP)
        wait_until(lambda: scalar("select lease_expires_at < clock_timestamp() from mneme.compaction_runs"))
        with debugged_worker(worker_environ, tmp_path / "two.log"):
            publish(settings, "s")
            wait_until(folded(engine))
            one.send(signal.SIGCONT)
            wait_until(lambda: results(one.log) or "raised" in one.log)
        # Whatever its call had brought: nothing was written, and nothing is said to have been.
        assert all(result["outcome"] == "lost_lease" for result in results(one.log))
        told = [line for line in one.log.splitlines() if '"lease lost' in line or '"outcome": "lost_lease"' in line]
        assert len(told) == 1
        assert str(all_runs(engine, "s")[0].id) in told[0]
    assert [n.content for n in active(engine, "s")] == ["By call 2."]
    assert [r.state for r in all_runs(engine, "s")] == ["expired", "succeeded"]
    assert scalar("select count(*) from mneme.summary_nodes where level = 2") == 1


def test_an_emptied_broker_loses_nothing(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    settings = load_settings(worker_environ)
    for number in range(12):
        write(engine, f"s{number}", range(7))
        publish(settings, f"s{number}")
    assert broker.llen("mneme") == 12
    broker.flushall()
    with (
        debugged_worker(worker_environ, tmp_path / "worker.log"),
        process(celery("beat"), worker_environ, tmp_path / "beat.log"),
    ):
        wait_until(lambda: all(len(active(engine, f"s{n}")) == 1 for n in range(12)), 30)
    assert len(server.calls) == 12
    assert not list(Path(".").glob("celerybeat*"))  # beat writes nothing where it runs


def test_a_failed_fold_is_a_failure_with_a_reason_and_no_traceback(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    server.answer = says.fails(401)
    with debugged_worker(worker_environ, tmp_path / "worker.log") as worker:
        publish(load_settings(worker_environ), "s")
        worker.wait_for_log("raised expected")
        log = worker.log
    assert "ConfigurationFailure" in log
    assert "check OPENAI_API_KEY" in log
    assert "Traceback" not in log
    assert "decision1" not in log  # not even at debug


def test_no_conversation_text_in_any_log_at_debug(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    server.answer = says.saves("The summary itself.")
    environ = worker_environ | {"OPENAI_API_KEY": "sk-very-secret", "OPENAI_LOG": "debug"}
    with debugged_worker(environ, tmp_path / "worker.log") as worker:
        publish(load_settings(worker_environ), "s")
        wait_until(folded(engine))
        log = worker.log
    assert server.calls[0].headers["authorization"] == "Bearer sk-very-secret"
    for forbidden in (content("s", 1)[:25], "decision1", "The summary itself", "sk-very-secret"):
        assert forbidden not in log


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [({"session_id": ""}, "session id must have 1 to 255 bytes"), ({"session_id": {"a": 1}}, "must be text, not dict")],
)
def test_a_job_for_what_is_no_session_fails_in_one_line(
    worker_environ: dict[str, str], broker: redis.Redis, tmp_path: Path, kwargs: Any, said: str
) -> None:
    with debugged_worker(worker_environ, tmp_path / "worker.log") as worker:
        get_producer(load_settings(worker_environ)).send_task("mneme.job", kwargs=kwargs, queue="mneme")
        worker.wait_for_log(said)
        assert "Traceback" not in worker.log


def test_a_message_pushed_by_another_language(
    engine: Engine, worker_environ: dict[str, str], broker: redis.Redis, tmp_path: Path
) -> None:
    import base64
    import uuid

    write(engine, "s", range(5))
    body = base64.b64encode(json.dumps([[], {"session_id": "s"}, None]).encode()).decode()
    message = {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "mneme.job", "id": str(uuid.uuid4())},
        "properties": {
            "body_encoding": "base64", "delivery_tag": str(uuid.uuid4()), "priority": 0,
            "delivery_info": {"exchange": "", "routing_key": "mneme"},
        },
    }  # fmt: skip
    with debugged_worker(worker_environ, tmp_path / "worker.log"):
        broker.lpush("mneme", json.dumps(message))
        wait_until(folded(engine))


def test_ending_one_task_does_not_end_the_others(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    """Flower's button "Terminate": a thread cannot be ended, and the folds beside it are not to be."""
    settings = load_settings(worker_environ)
    server.answer = says.saves("Short.", after_seconds=2)
    for name in ("a", "b"):
        write(engine, name, range(5))
    with debugged_worker(worker_environ, tmp_path / "worker.log") as worker:
        sent = [
            get_producer(settings).send_task("mneme.job", kwargs={"session_id": name}, queue="mneme")
            for name in ("a", "b")
        ]
        server.wait_for_calls(2)
        get_producer(settings).control.revoke(sent[0].id, terminate=True)
        wait_until(lambda: len(results(worker.log)) == 2)
        assert [result["outcome"] for result in results(worker.log)] == ["folded", "folded"]


REFUSED = {
    "a key with a line end": ({"OPENAI_API_KEY": "sk-1\n"}, "OPENAI_API_KEY holds a character that no key has"),
    "no model": ({"MNEME_LLM__MODEL": ""}, "llm.model is not set: set MNEME_LLM__MODEL, for example to"),
    "no key": ({"OPENAI_BASE_URL": ""}, "llm.model is 'm' and there is no key: set OPENAI_API_KEY"),
    "no database": ({"DATABASE_URL": ""}, "database.url is not set: set DATABASE_URL"),
    "no prompt": (
        {"MNEME_LLM__PROMPT_FILE": "/nonexistent/p.txt"},
        "llm.prompt_file: /nonexistent/p.txt cannot be read: No such",
    ),
    "no broker": ({"REDIS_URL": ""}, "broker.url is not set: set REDIS_URL"),
}


@pytest.mark.parametrize(("changes", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_a_worker_that_could_not_fold_exits_2_and_says_what_to_set(
    worker_environ: dict[str, str], changes: dict[str, str], said: str
) -> None:
    done = run(celery("worker"), worker_environ | changes)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_worker_without_a_schema_exits_2(postgres: Any, worker_environ: dict[str, str]) -> None:
    done = run(celery("worker"), worker_environ | {"DATABASE_URL": postgres.url("postgres")})
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "mneme: the database has no schema of mneme: run `mneme migrate`"


def test_a_worker_waits_for_a_database_that_is_down(
    worker_environ: dict[str, str], broker: redis.Redis, tmp_path: Path
) -> None:
    environ = worker_environ | {"DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/d"}
    with debugged_worker(environ, tmp_path / "worker.log") as worker:
        assert "secret" not in worker.log
        publish(load_settings(worker_environ), "s")
        worker.wait_for_log("out of reach")
        assert worker.popen.poll() is None
