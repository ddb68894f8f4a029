"""Old runs are forgotten, but never what is a session's state or a node's provenance; the doctor is sent for once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text

from models import load_settings
from models.doctor import diagnose
from models.settings import Settings
from tasks.upkeep import examination, retention
from tests.models.test_claims import commit, decline, expire, fail, must_claim, try_claim
from tests.support.doctoring import bypass
from tests.support.processes import celery, celery_worker, mneme, process, run, wait_until
from tests.support.snapshots import all_runs, write


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ)


def age(scalar: Callable[..., Any], days: int) -> None:
    scalar(
        "update mneme.compaction_runs set started_at = started_at - make_interval(days => :d),"
        " finished_at = finished_at - make_interval(days => :d)", d=days,
    )  # fmt: skip


def states(engine: Engine, session_id: str) -> list[str]:
    return [row.state for row in all_runs(engine, session_id)]


def test_what_failed_long_ago_is_forgotten_and_the_newest_kept(
    engine: Engine, settings: Settings, scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    for _ in range(3):
        fail(engine, must_claim(engine, "s"), "transient")
        scalar("update mneme.compaction_runs set retry_at = now() where retry_at is not null")
    must_claim(engine, "s")
    expire(scalar)
    commit(engine, must_claim(engine, "s"))
    write(engine, "s", range(5, 10))
    fail(engine, must_claim(engine, "s"), "content")
    scalar("update mneme.compaction_runs set retry_at = null")
    write(engine, "declined", range(5))
    decline(engine, must_claim(engine, "declined"))
    assert retention(settings, engine) == {"forgotten": 0}
    age(scalar, 29)
    assert retention(settings, engine) == {"forgotten": 0}
    age(scalar, 2)
    assert retention(settings, engine) == {"forgotten": 4}
    assert states(engine, "s") == ["succeeded", "failed"]
    assert states(engine, "declined") == ["declined"]
    # The counters that the newest run carries go on.
    claimed = must_claim(engine, "s")
    assert (claimed.attempt, len(claimed.batch)) == (2, 2)
    assert {finding.rule.name for finding in diagnose(engine, settings) if finding.violations} == set()
    assert retention(settings, engine) == {"forgotten": 1}  # the failed one is the newest no more


def test_what_is_to_be_tried_again_stays(engine: Engine, settings: Settings, scalar: Callable[..., Any]) -> None:
    write(engine, "s", range(5))
    fail(engine, must_claim(engine, "s"), "transient")
    age(scalar, 40)
    scalar("update mneme.compaction_runs set retry_at = now()")
    must_claim(engine, "s")
    scalar("update mneme.compaction_runs set retry_at = now() where state = 'failed'")
    assert retention(settings, engine) == {"forgotten": 0}


def test_many_are_forgotten_in_pages_past_those_that_stay(
    engine: Engine, settings: Settings, scalar: Callable[..., Any]
) -> None:
    """FAILURES 42. A thousand newest runs lie before, two thousand old ones behind."""
    scalar("insert into mneme.sessions (id) select 's' || g from generate_series(1, 1000) g")
    insert = (
        "insert into mneme.compaction_runs (session_id, level, state, lease_expires_at, started_at, finished_at)"
        " select 's' || g % 1000 + 1, 2, 'declined', now(), now() - interval '{0}', now() - interval '{0}'"
        " from generate_series(1, {1}) g"
    )
    scalar(insert.format("90 days", 1000))
    assert retention(settings, engine) == {"forgotten": 0}
    scalar(insert.format("50 days", 2000))
    scalar(insert.format("1 day", 1000))
    # Of three thousand that are old each has a newer one by now.
    assert retention(settings, engine) == {"forgotten": 3000}
    assert scalar("select count(*) from mneme.compaction_runs") == 1000


def test_a_locked_run_is_left_for_the_next_time(engine: Engine, settings: Settings, scalar: Callable[..., Any]) -> None:
    write(engine, "s", range(5))
    for _ in range(2):
        fail(engine, must_claim(engine, "s"), "transient")
        scalar("update mneme.compaction_runs set retry_at = null")
    age(scalar, 40)
    with engine.begin() as other:
        other.execute(text("select from mneme.compaction_runs order by started_at limit 1 for update"))
        assert retention(settings, engine) == {"forgotten": 0}
    assert retention(settings, engine) == {"forgotten": 1}


def test_the_doctor_is_sent_for_once_and_what_it_found_stands_in_the_status(
    engine: Engine, environ: dict[str, str], settings: Settings, scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(3))
    found: list[dict[str, object]] = []
    threads = [threading.Thread(target=lambda: found.append(examination(settings, engine))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=str) == [{"examined": False}, {"examined": True, "broken": []}]
    assert "doctor      clean, " in run(mneme("status"), environ).stdout
    bypass(engine, "update mneme.summary_nodes set token_count = 1", {})
    scalar("update mneme.service_state set examining_at = now() - interval '1 day'")
    assert examination(settings, engine) == {"examined": True, "broken": ["tokens_are_estimated"]}
    told = run(mneme("status"), environ).stdout
    assert "doctor      1 rules BROKEN (tokens_are_estimated), 3 violations, 0 s ago" in told.replace(
        "1 s ago", "0 s ago"
    )
    assert "-> which rows, and what to do: mneme doctor" in told


def test_beat_sends_for_both(
    engine: Engine, environ: dict[str, str], scalar: Callable[..., Any], broker: Any, tmp_path: Any
) -> None:
    write(engine, "s", range(5))
    for _ in range(2):
        fail(engine, must_claim(engine, "s"), "transient")
        scalar("update mneme.compaction_runs set retry_at = null")
    age(scalar, 40)
    scalar("update mneme.sessions set paused_at = now()")
    quick = environ | {f"MNEME_SCHEDULES__{name}_SECONDS": "1" for name in ("RETENTION", "DOCTOR")}
    with celery_worker(quick, tmp_path / "worker.log"), process(celery("beat"), quick, tmp_path / "beat.log"):
        wait_until(lambda: scalar("select count(*) from mneme.compaction_runs") == 1, 30, "the retention")
        wait_until(lambda: scalar("select broken_rules from mneme.service_state") == [], 30, "the doctor")
    assert try_claim(engine, "s").outcome == "paused"
