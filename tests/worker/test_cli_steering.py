"""``mneme pause``, ``resume``, ``cancel``, ``enqueue`` and ``sweep`` as processes, and workers that obey them."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text

from models import transaction
from models.runs import Fold, LostLease, Usage, commit_fold
from tests.models.test_claims import try_claim
from tests.support import model_server as says
from tests.support.broker import enqueued
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import debugged_worker, mneme, run, wait_until
from tests.support.snapshots import active, all_runs, write


@pytest.fixture
def command(environ: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda *arguments: run(mneme(*arguments), environ)


@pytest.fixture
def done(command: Callable[..., Any]) -> Callable[..., list[str]]:
    def lines(*arguments: str) -> list[str]:
        ended = command(*arguments)
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout.splitlines()

    return lines


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        server.answer = says.saves("Short.")
        yield server


def test_a_paused_session_waits_and_a_resumed_one_is_enqueued(
    engine: Engine, done: Callable[..., list[str]], broker: redis.Redis
) -> None:
    for session_id in ("s", "other"):
        write(engine, session_id, range(5))
    assert done("pause", "s") == ["session s is paused; to go on: mneme resume s"]
    assert done("pause", "s") == ["session s is paused; to go on: mneme resume s"]
    assert try_claim(engine, "s").outcome == "paused"
    assert not hasattr(try_claim(engine, "other"), "outcome")
    shown = "\n".join(done("status"))
    assert "paused      1 sessions, 5 nodes\n            -> 1 are paused by name (s): mneme resume SESSION" in shown
    assert done("resume", "s") == ["session s is resumed", "it is due, and enqueued"]
    assert enqueued(broker, 1) == ["s"]
    assert not hasattr(try_claim(engine, "s"), "outcome")
    assert done("resume", "s") == ["session s was not paused", "it is due, and enqueued"]


def test_a_command_that_enqueues_in_vain_says_what_is_in_the_way(
    engine: Engine, done: Callable[..., list[str]], environ: dict[str, str]
) -> None:
    write(engine, "s", range(5))
    done("pause", "--all")
    paused = "it, or everything, is paused: mneme status"
    assert done("resume", "s")[-1] == f"but {paused}"
    assert done("enqueue", "s") == [f"session s: enqueued; 5 nodes wait, due, but {paused}"]
    assert done("retry", "s")[-1] == f"but {paused}"
    assert json.loads(run(mneme("retry", "s", "--json"), environ).stdout)["held_back"] == "paused"


def test_everything_paused_holds_sessions_that_do_not_exist_yet(
    engine: Engine, done: Callable[..., list[str]], broker: redis.Redis
) -> None:
    write(engine, "s", range(5))
    done("pause", "s")
    assert done("pause", "--all") == ["everything is paused; to go on: mneme resume --all"]
    write(engine, "new", range(5))
    assert try_claim(engine, "new").outcome == "paused"
    assert done("sweep") == ["0 sessions enqueued, 0 dead leases closed"]
    assert "paused      EVERYTHING, 2 sessions, 10 nodes\n            -> mneme resume --all" in "\n".join(
        done("status")
    )
    assert done("resume", "--all") == [
        "everything is resumed; the sweep finds what is due", "paused by themselves: s",
    ]  # fmt: skip
    assert done("resume", "--all") == ["not everything was paused", "paused by themselves: s"]
    assert try_claim(engine, "s").outcome == "paused"
    assert not hasattr(try_claim(engine, "new"), "outcome")


def test_a_cancelled_run_writes_nothing_and_its_session_is_paused(
    engine: Engine, done: Callable[..., list[str]]
) -> None:
    write(engine, "s", range(5))
    claimed = try_claim(engine, "s")
    told = done("cancel", "s")
    assert told == [
        f"run {claimed.run_id} of w writes nothing any more", "session s is paused; to go on: mneme resume s",
    ]  # fmt: skip
    with transaction(engine) as connection, pytest.raises(LostLease):
        commit_fold(connection, claimed, Fold("A summary.", "m", "p"), Usage())
    assert [node.level for node in active(engine, "s")] == [1] * 5
    assert done("cancel", "s") == ["nothing was running", "session s is paused; to go on: mneme resume s"]
    done("resume", "s")
    again = try_claim(engine, "s")
    # It counts for nothing: neither as an attempt nor as a crash.
    assert (again.attempt, len(again.batch)) == (1, 5)
    assert all_runs(engine, "s")[-1].crashes == 0
    found = json.loads("".join(done("cancel", "s", "--json")))
    assert found == {"session_id": "s", "cancelled": [{"run_id": str(again.run_id), "level": 2, "worker": "w"}]}


def test_a_commit_under_way_is_waited_for(engine: Engine, done: Callable[..., list[str]]) -> None:
    write(engine, "s", range(5))
    claimed = try_claim(engine, "s")
    with engine.connect() as connection:
        commit_fold(connection, claimed, Fold("A summary.", "m", "p"), Usage())
        with subprocess.Popen(
            mneme("cancel", "s"), env={"DATABASE_URL": engine.url.render_as_string(hide_password=False)},
            stdout=subprocess.PIPE, text=True,
        ) as cancelling:  # fmt: skip
            waits = text(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%cancelled%'"
            )
            wait_until(lambda: _asked(engine, waits), 20, "cancel to wait")
            connection.commit()
            assert cancelling.communicate(timeout=20)[0].startswith("nothing was running\n")
    assert [node.level for node in active(engine, "s")] == [2]


def _asked(engine: Engine, statement: Any) -> Any:
    with engine.connect() as connection:
        return connection.execute(statement).scalar()


def test_four_workers_obey_pause_cancel_and_resume(
    engine: Engine, environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path,
    done: Callable[..., list[str]],
) -> None:  # fmt: skip
    asking = environ | {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url, "MNEME_WORKER__CONCURRENCY": "2"}
    sessions = [f"s{number}" for number in range(12)]
    server.answer = says.saves("Short.", after_seconds=3)
    with ExitStack() as stack:
        for number in range(4):
            stack.enter_context(debugged_worker(asking, tmp_path / f"worker{number}.log"))
        write(engine, "cancelled", range(5))
        done("enqueue", "cancelled")
        server.wait_for_calls(1)
        assert done("cancel", "cancelled")[0].endswith("writes nothing any more")
        done("pause", "--all")
        for session_id in sessions:
            write(engine, session_id, range(5))
        done("enqueue", *sessions)
        logs = [tmp_path / f"worker{number}.log" for number in range(4)]
        wait_until(
            lambda: sum(log.read_text().count("'paused'") for log in logs) == 12, 30, "twelve jobs to find it paused"
        )
        assert len(server.calls) == 1
        done("resume", "--all")
        done("enqueue", *sessions)
        wait_until(lambda: all(len(active(engine, session_id)) == 1 for session_id in sessions), 60, "all to be folded")
        wait_until(lambda: server.under_way == 0)
    assert len(server.calls) == 13
    assert [node.level for node in active(engine, "cancelled")] == [1] * 5
    assert [row.state for row in all_runs(engine, "cancelled")] == ["cancelled"]


def test_enqueue_tells_what_waits(engine: Engine, command: Callable[..., Any], broker: redis.Redis) -> None:
    write(engine, "due", range(5))
    write(engine, "few", range(3))
    ended = command("enqueue", "due", "few", "due", "no\x1bne")
    assert ended.returncode == 1
    assert ended.stdout.splitlines() == [
        "session due: enqueued; 5 nodes wait, due", "session few: enqueued; 3 nodes wait, not due yet",
    ]  # fmt: skip
    assert ended.stderr == "mneme: there is no session 'no\\x1bne'\n"
    assert sorted(enqueued(broker, 2)) == ["due", "few"]


def test_enqueue_and_sweep_without_a_broker(engine: Engine, environ: dict[str, str]) -> None:
    write(engine, "s", range(5))
    for arguments in (("enqueue", "s"), ("sweep",)):
        ended = run(mneme(*arguments), {"DATABASE_URL": environ["DATABASE_URL"]})
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("mneme: broker.url is not set")
    ended = run(mneme("enqueue", "s"), environ | {"REDIS_URL": "redis://127.0.0.1:1/0"})
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout == "session s: NOT enqueued: the broker took no more; 5 nodes wait, due\n"


def test_a_sweep_by_hand_enqueues_and_is_no_sign_of_beat(
    engine: Engine, done: Callable[..., list[str]], broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    scalar("update mneme.summary_nodes set created_at = now() - interval '1 min'")
    found = json.loads("".join(done("sweep", "--json")))
    assert (found["enqueued"], found["expired"]) == (1, 0)
    assert enqueued(broker, 1) == ["s"]
    assert scalar("select swept_at from mneme.service_state") is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["pause"], 2, "name a SESSION, or give --all"),
        (["resume", "s", "--all"], 2, "name a SESSION, or give --all"),
        (["pause", "no such"], 1, "mneme: there is no session 'no such'"),
        (["resume", "no such"], 1, "mneme: there is no session 'no such'"),
        (["cancel", "no such"], 1, "mneme: there is no session 'no such'"),
        (["cancel"], 2, "Missing argument 'SESSION'"),
        (["enqueue"], 2, "Missing argument 'SESSION...'"),
        (["pause", "a" * 256], 1, "a session id must have 1 to 255 bytes"),
    ],
)
def test_wrong_usage(command: Callable[..., Any], arguments: list[str], code: int, said: str) -> None:
    ended = command(*arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert said in ended.stderr
    assert not re.search("Traceback", ended.stderr)


def test_programs_are_told_in_json(
    engine: Engine, environ: dict[str, str], broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))

    def told(*arguments: str) -> Any:
        done = run(mneme(*arguments, "--json"), environ)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    assert told("pause", "s") == {"session_id": "s", "paused": True}
    assert told("resume", "s") == {
        "session_id": "s", "paused": False, "told": ["session s is resumed", "it is due, and enqueued"],
    }  # fmt: skip
    assert told("pause", "--all") == {"session_id": None, "paused": True}
    assert told("resume", "--all")["paused"] is False
    assert told("enqueue", "s") == [
        {"session_id": "s", "enqueued": True, "uncovered": 5, "due": True, "held_back": None}
    ]
    unknown = run(mneme("enqueue", "s", "no such", "--json"), environ)
    assert (unknown.returncode, len(json.loads(unknown.stdout))) == (1, 1)
