"""``mneme status`` and ``mneme retry`` as processes: each cause is named with its remedy, and the remedy works."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text

from models import ConfigurationFailure, load_settings, transaction
from models.breaker import Server, note_failure, server_of
from models.claims import Reviewed
from models.migrate import known_revisions
from models.runs import Claim
from models.settings import MnemeSettings, Settings
from tasks.upkeep import retention
from tests.models.test_claims import decline, expire, fail, try_claim
from tests.support.broker import enqueued
from tests.support.processes import celery_worker, mneme, run, wait_until
from tests.support.snapshots import active, all_runs, node, write


@pytest.fixture
def command(environ: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda *arguments: run(mneme(*arguments), environ | {"MNEME_LLM__MODEL": "m"})


@pytest.fixture
def status(command: Callable[..., Any]) -> Callable[[], str]:
    def shown() -> str:
        done = command("status")
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout
        return str(done.stdout)

    return shown


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ | {"MNEME_LLM__MODEL": "m"})


def claim_of(engine: Engine, session_id: str, **more: Any) -> Claim:
    claimed = try_claim(engine, session_id, **more)
    assert isinstance(claimed, Claim), claimed
    return claimed


def crash(engine: Engine, session_id: str, times: int, scalar: Callable[..., Any]) -> Any:
    """Have a worker die with the session's batch so many times; return what the next claim says."""
    for _ in range(times):
        claim_of(engine, session_id)
        expire(scalar)
    return try_claim(engine, session_id)


def test_an_idle_system(status: Callable[[], str], broker: redis.Redis, scalar: Callable[..., Any]) -> None:
    scalar("update mneme.service_state set swept_at = now() - interval '5 s', swept_by = 'host:1:ab'")
    scalar("insert into mneme.workers values ('host:1:ab', '0.1.0', 8)")
    assert re.sub(r"\d+ s ago", "some s ago", status()).splitlines() == [
        "due         0 sessions",
        "running     0 folds",
        "backing off 0 runs",
        "paused      0 sessions",
        "held        0 sessions",
        "oldest      nothing is due",
        "last hour   0 folds, 0 + 0 tokens",
        "last day    0 folds, 0 + 0 tokens",
        "doctor      not yet sent for",
        "workers     1 alive, 8 folds at once",
        "swept       some s ago, by host:1:ab",
        "queue       0 messages",
        f"schema      {known_revisions()[-1]}",
    ]


def test_beat_broker_and_workers_are_told_apart(
    environ: dict[str, str], status: Callable[[], str], broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    told = status()
    assert "workers     0 alive\nswept       never\nqueue       0 messages\n            -> no worker is there: " in told
    scalar("insert into mneme.workers values ('host:1:ab', '0.1.0', 8)")
    told = status()
    assert "swept       never\nqueue       0 messages\n            -> no sweep is sent: celery -A worker beat" in told
    scalar("update mneme.service_state set swept_at = now() - interval '1 min', swept_by = 'host:1:ab'")
    assert "-> no sweep is sent: celery -A worker beat" not in status()
    scalar("update mneme.service_state set swept_at = now() - interval '1 h'")
    assert "-> no sweep is sent: celery -A worker beat" in status()
    assert run(mneme("enqueue", "s"), environ).returncode == 1
    scalar("insert into mneme.sessions (id) values ('s')")
    assert run(mneme("enqueue", "s"), environ).returncode == 0
    told = status()
    assert (
        "queue       1 messages\n            -> messages wait and no worker takes them: celery -A worker worker" in told
    )
    down = run(mneme("status"), environ | {"REDIS_URL": "redis://127.0.0.1:1/0"})
    assert (down.returncode, down.stderr) == (0, "")
    assert (
        "queue       the broker did not tell the length of its queue: Error 111 connecting to 127.0.0.1:1"
        in down.stdout
    )
    assert "-> see that the broker answers at REDIS_URL" in down.stdout
    scalar("update mneme.service_state set swept_at = now()")
    assert (
        "-> see that the broker answers at REDIS_URL"
        in run(mneme("status"), environ | {"REDIS_URL": "redis://127.0.0.1:1/0"}).stdout
    )
    scalar("delete from mneme.workers")
    assert "-> no worker is there: " in status()  # at once, and not when the last sweep has grown old
    broker.config_set("requirepass", "of-the-broker")
    try:
        refused = run(mneme("status"), environ).stdout
        assert "queue       the broker did not tell the length of its queue: Authentication required" in refused
        swept = run(mneme("sweep"), environ)
        assert (swept.returncode, swept.stderr.count("\n")) == (1, 1)
        assert "Authentication required" in swept.stderr
    finally:
        redis.Redis.from_url(environ["REDIS_URL"].replace("//", "//:of-the-broker@")).config_set("requirepass", "")
    unset = run(mneme("status", "--json"), {"DATABASE_URL": environ["DATABASE_URL"]})
    assert json.loads(unset.stdout)["queue"] == {"messages": None, "error": "broker.url is not set here"}


def test_workers_that_are_there_gone_and_ended(
    environ: dict[str, str], status: Callable[[], str], broker: redis.Redis, scalar: Callable[..., Any], tmp_path: Path
) -> None:
    def alive(count: int) -> bool:
        return f"workers     {count} alive" in status()

    with celery_worker(environ | {"MNEME_WORKER__CONCURRENCY": "3"}, tmp_path / "one.log") as one:
        wait_until(lambda: alive(1))
        assert "workers     1 alive, 3 folds at once\n" in status()
        with celery_worker(environ, tmp_path / "two.log"):
            wait_until(lambda: "workers     2 alive, 11 folds at once\n" in status())
        # The second ended as it should, the first is killed.
        wait_until(lambda: alive(1))
        one.send(signal.SIGKILL)
        one.popen.wait()
    assert alive(1)  # nobody can know yet
    scalar("update mneme.workers set seen_at = now() - interval '20 min'")
    told = status()
    assert re.search(
        r"workers     0 alive\n +\S+:\d+:\w+ was killed or cut off, last seen 20 min ago\n +-> what they", told
    )
    scalar("update mneme.service_state set examining_at = now()")
    scalar("update mneme.workers set seen_at = now() - interval '25 h'")
    assert retention(load_settings(environ)) == {"forgotten": 0}
    assert "was killed" not in status()
    scalar(
        "insert into mneme.workers (name, release, slots, seen_at)"
        " select 'host-' || g, '0.1.0', 8, now() - make_interval(secs => 50 + 20 * g) from generate_series(0, 7) g"
    )
    told = status()
    assert "workers     1 alive, 8 folds at once\n            host-0 was last seen 50 s ago: it may be gone\n" in told
    assert "            and 4 more within a day\n" in told
    # A rolling upgrade is seen as one.
    scalar("delete from mneme.workers")
    scalar("insert into mneme.workers values ('a', '0.1.0', 8), ('b', '0.2.0', 8)")
    assert "workers     2 alive, 16 folds at once, of releases 0.1.0, 0.2.0\n" in status()


def test_what_waits_and_what_holds_it(
    engine: Engine, status: Callable[[], str], command: Callable[..., Any], scalar: Callable[..., Any]
) -> None:
    for session_id in ("due", "late", "running", "failed", "paused"):
        write(engine, session_id, range(5))
    write(engine, "too few", range(4))
    scalar("update mneme.summary_nodes set created_at = created_at - interval '3 h' where session_id = 'late'")
    claim_of(engine, "running")
    fail(engine, claim_of(engine, "failed"), "transient")
    scalar(
        "update mneme.compaction_runs set retry_at = now() + interval '9 min', error = 'no luck' where state = 'failed'"
    )
    scalar("update mneme.sessions set paused_at = now() where id = 'paused'")

    told = status()
    assert "due         2 sessions, 10 nodes, the first since 3 h" in told
    assert "nobody takes them" not in told  # something is being folded: it is a backlog, and will be worked off
    assert "running     1 folds" in told
    assert "backing off 1 runs\n            1 transient: no luck\n" in told
    assert "-> they are tried again by themselves within 9 min; now: mneme retry SESSION, or --all" in told
    assert "paused      1 sessions, 5 nodes\n" in told
    assert "oldest      uncovered node of a session that is due: 3 h" in told

    found = json.loads(command("status", "--json").stdout)
    assert {hold: waiting["sessions"] for hold, waiting in found["waiting"].items()} == {
        "due": 2, "already_running": 1, "backing_off": 1, "paused": 1,
    }  # fmt: skip
    # Nothing runs, and nothing has ended for longer than a sweep takes to see to it.
    scalar(
        "update mneme.compaction_runs set state = 'released', finished_at = now() - interval '3 min' where state = 'running'"
    )
    scalar("update mneme.compaction_runs set finished_at = now() - interval '3 min'")
    assert "-> nobody takes them (late, due, running): is a worker running, on this broker? And beat?" in status()
    claim_of(engine, "running")
    # A lease that has passed holds nothing: claim and status agree.
    expire(scalar)
    assert "1 more with a lease that has passed: the next sweep closes them" in status()
    assert json.loads(command("status", "--json").stdout)["waiting"]["due"]["sessions"] == 3


def test_status_and_claim_say_the_same_of_every_session(
    engine: Engine, command: Callable[..., Any], scalar: Callable[..., Any], settings: Settings
) -> None:
    """FAILURES 12: one predicate for both."""
    holds = {
        "due": "",
        "paused": "update mneme.sessions set paused_at = now() where id = 'paused'",
        "backing_off": "update mneme.compaction_runs set state = 'failed', finished_at = now(), "
        "retry_at = now() + interval '1 h' where session_id = 'backing_off'",
        "already_running": "",
        "lease passed": "update mneme.compaction_runs set lease_expires_at = now() - interval '1 s'"
        " where session_id = 'lease passed'",
        "retry due": "update mneme.compaction_runs set state = 'failed', finished_at = now(), "
        "retry_at = now() - interval '1 s' where session_id = 'retry due'",
    }
    for session_id, statement in holds.items():
        write(engine, session_id, range(5))
        if session_id not in ("due", "paused"):
            claim_of(engine, session_id)
        if statement:
            scalar(statement)
    shown = json.loads(command("status", "--json").stdout)["waiting"]
    by_status = {session_id: hold for hold, waiting in shown.items() for session_id in waiting["first"]}
    claims = {session_id: try_claim(engine, session_id) for session_id in holds}
    by_claim = {s: "due" if isinstance(claimed, Claim) else claimed.outcome for s, claimed in claims.items()}
    assert by_status == by_claim
    assert set(by_claim.values()) == {"due", "paused", "backing_off", "already_running"}


def test_an_open_breaker_and_its_remedy(
    engine: Engine, status: Callable[[], str], command: Callable[..., Any], settings: Settings, broker: redis.Redis
) -> None:
    write(engine, "s", range(5))
    claimed = claim_of(engine, "s")
    fail(engine, claimed, "configuration")
    failure = ConfigurationFailure("the model's server answered 401: check OPENAI_API_KEY")
    with transaction(engine) as connection:
        note_failure(connection, server_of(settings), failure, "s", claimed.run_id, settings.llm)
    write(engine, "t", range(5))
    told = status()
    assert "held        2 sessions, 10 nodes, by the breaker" in told
    assert "OPEN: m at https://api.openai.com/v1: all calls on hold for" in told
    assert "check OPENAI_API_KEY" in told
    assert "-> mend that (a key or another setting: of every worker, then restart it), and it closes by itself" in told

    done = command("retry", "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 open breakers let the next call through" in done.stdout
    assert "the next call tries" in status()


def test_what_was_given_up_is_named_and_offered_again(
    engine: Engine, status: Callable[[], str], command: Callable[..., Any], scalar: Callable[..., Any],
    broker: redis.Redis,
) -> None:  # fmt: skip
    given_up = write(engine, "bad \x1b[31m", range(5))
    reviewed = crash(engine, "bad \x1b[31m", 5, scalar)
    assert isinstance(reviewed, Reviewed)
    write(engine, "fine", range(5))
    decline(engine, claim_of(engine, "fine"))
    told = status()
    assert "dismissed   2 crashes" in told
    assert "dismissed   5 declined" in told
    assert f"node {given_up[0].id} of session $'bad \\x1b[31m'" in told
    assert "then mneme retry SESSION" in told

    done = command("retry", "--all", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "sessions": 1,
        "runs": 0,
        "nodes": 2,
        "enqueued": 1,
        "busy": 0,
        "breakers": 0,
        "held_back": None,
    }
    assert enqueued(broker, 1) == ["bad \x1b[31m"]
    assert node(engine, given_up[0].id).dismissed_reason is None
    assert "crashes" not in status()
    assert "dismissed   5 declined" in status()  # a verdict of the model's, not a failure: only when asked for by name
    assert json.loads(command("retry", "fine", "--json").stdout)["nodes"] == 5
    assert claim_of(engine, "fine")


def test_retry_makes_due_what_waits(
    engine: Engine, command: Callable[..., Any], scalar: Callable[..., Any], broker: redis.Redis
) -> None:
    for session_id in ("a", "b"):
        write(engine, session_id, range(5))
        fail(engine, claim_of(engine, session_id), "transient")
    scalar("update mneme.compaction_runs set retry_at = now() + interval '1 h'")
    scalar("update mneme.sessions set enqueued_at = now()")
    done = command("retry", "a")
    assert done.stdout == "session a: 1 runs due now, 0 nodes offered again, 1 of 1 sessions enqueued\n"
    assert enqueued(broker, 1) == ["a"]
    # As if a sweep had enqueued it: the next one adds no copy.
    assert scalar("select enqueued_at > now() - interval '1 min' from mneme.sessions where id = 'a'")
    assert isinstance(try_claim(engine, "a"), Claim)
    assert try_claim(engine, "b").outcome == "backing_off"
    assert all_runs(engine, "b")[0].retry_at is not None


def test_retry_goes_through_all_sessions_a_few_hundred_at_a_time(
    engine: Engine, command: Callable[..., Any], scalar: Callable[..., Any], broker: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """FAILURES 42: no statement over everything. Twelve hundred sessions are three rounds."""
    scalar("insert into mneme.sessions (id) select 's' || g from generate_series(1, 1200) g")
    scalar(
        "insert into mneme.compaction_runs (session_id, level, state, lease_expires_at, finished_at, retry_at)"
        " select 's' || g, 2, 'failed', now(), now(), now() + interval '1 h' from generate_series(1, 1200) g"
    )
    done = command("retry", "--all", "--json")
    assert json.loads(done.stdout) == {
        "sessions": 1200, "runs": 1200, "nodes": 0, "enqueued": 1200, "busy": 0, "breakers": 0, "held_back": None,
    }  # fmt: skip
    assert broker.llen("mneme") == 1200
    assert scalar("select count(*) from mneme.compaction_runs where retry_at > now()") == 0


def test_without_a_broker_retry_leaves_the_rest_to_the_sweep(
    engine: Engine, environ: dict[str, str], scalar: Callable[..., Any]
) -> None:
    write(engine, "a", range(5))
    done = run(mneme("retry", "a"), {"DATABASE_URL": environ["DATABASE_URL"]})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("0 of 1 sessions enqueued; the sweep finds the others\n")
    assert scalar("select enqueued_at from mneme.sessions") is None  # at once


def test_what_somebody_has_locked_is_passed_over_and_named(
    engine: Engine, command: Callable[..., Any], scalar: Callable[..., Any], broker: redis.Redis
) -> None:
    """FAILURES 42: one locked row must not hold up all the others."""
    for session_id in ("a", "b", "c"):
        write(engine, session_id, range(5))
        fail(engine, claim_of(engine, session_id), "transient")
    scalar("update mneme.compaction_runs set retry_at = now() + interval '1 h'")
    with engine.begin() as other:
        other.execute(text("select from mneme.compaction_runs where session_id = 'b' for update"))
        done = command("retry", "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 runs due now" in done.stdout
    assert "1 sessions were locked by somebody else" in done.stdout
    done = command("retry", "--all", "--json")
    assert json.loads(done.stdout)["runs"] == 1


def test_a_breaker_of_other_settings_is_marked(
    engine: Engine, status: Callable[[], str], settings: Settings, scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    claimed = claim_of(engine, "s")
    fail(engine, claimed, "configuration")
    with transaction(engine) as connection:
        other = Server("http://old:1/v1", "m")
        note_failure(connection, other, ConfigurationFailure("401"), "s", claimed.run_id, settings.llm)
    assert "OPEN: m at http://old:1/v1 (not what these settings ask)" in status()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["retry"], 2, "name a SESSION, or give --all"),
        (["retry", "a", "--all"], 2, "name a SESSION, or give --all"),
        (["retry", "no such"], 1, "mneme: there is no session 'no such'"),
        (["retry", "a" * 256], 1, "session id"),
        (["status", "x"], 2, "unexpected extra argument"),
    ],
)
def test_wrong_usage(command: Callable[..., Any], arguments: list[str], code: int, said: str) -> None:
    done = command(*arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_text_of_a_conversation_is_shown(
    engine: Engine, status: Callable[[], str], scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    assert isinstance(crash(engine, "s", 5, scalar), Reviewed)
    write(engine, "t", range(5))
    told = status()
    assert "decision1" not in told
    assert "Snapshot" not in told
    assert len(active(engine, "t")) == MnemeSettings().l2_snapshot_threshold
