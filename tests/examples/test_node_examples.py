"""The examples in Node: SQL alone, found by the sweep; and SQL with the job that Node pushes itself."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import redis
from sqlalchemy import Engine

from tests.support.broker import body, messages, own_redis
from tests.support.processes import celery, debugged_worker, process, run, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import active

Project = Callable[[str], Path]


def node(directory: Path, environ: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(["node", "main.mjs", *arguments], environ, cwd=directory)


def test_sql_alone_is_found_by_the_sweep(
    node_project: Project, environ: dict[str, str], engine: Engine, broker: redis.Redis, tmp_path: Path
) -> None:
    directory = node_project("node_sql")
    schedule = {f"MNEME_SCHEDULES__{name}_SECONDS": "1" for name in ("SWEEP", "GRACE", "REQUEUE")}
    with (
        debugged_worker(environ | schedule, tmp_path / "worker.log"),
        process(celery("beat"), environ | schedule, tmp_path / "beat.log"),
    ):
        done = node(directory, {"DATABASE_URL": environ["DATABASE_URL"]}, "chat-42")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "written: 5 snapshots\n# Long-term memory\n\n[2026-03-01 to 2026-03-05, messages 1 to 100"
    )
    assert [n.level for n in active(engine, "chat-42")] == [2]


def test_a_job_pushed_by_node_is_taken_without_any_sweep(
    node_project: Project, environ: dict[str, str], engine: Engine, broker: redis.Redis, tmp_path: Path
) -> None:
    directory = node_project("node_celery")
    done = node(directory, environ, "chätt 🚀")
    assert (done.returncode, done.stdout, done.stderr) == (0, "enqueued\n", "")
    (message,) = messages(broker, 1)
    assert body(message) == [[], {"session_id": "chätt 🚀"}, None]
    with debugged_worker(environ, tmp_path / "worker.log") as worker:
        wait_until(lambda: [n.level for n in active(engine, "chätt 🚀")] == [2])
        worker.wait_for_log("'outcome': 'folded'")

    # A broker that is down or frozen costs two seconds at most, and nothing of what was written.
    with own_redis(tmp_path / "redis.log") as own:
        own.freeze()
        for url, session_id in ((f"redis://127.0.0.1:{free_port()}/0", "down"), (own.url, "frozen")):
            done = node(directory, environ | {"REDIS_URL": url}, session_id)
            assert (done.returncode, done.stdout) == (0, "written\n")
            assert "mneme's sweep will find the session" in done.stderr
            assert len(active(engine, session_id)) == 5


def test_wrong_usage_is_exit_code_2(node_project: Project) -> None:
    for name in ("node_sql", "node_celery"):
        assert node(node_project(name), {}).returncode == 2
