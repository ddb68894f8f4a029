"""The sweep: everything due is found from the rows, once, whatever was lost."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text

from models import load_settings, runs, transaction
from models.breaker import server_of
from models.settings import MnemeSettings, ScheduleSettings, Settings
from models.sweeping import sweep_once
from tasks.sweep import sweep
from tests.models.test_claims import SERVER, commit, expire, fail, must_claim
from tests.support.broker import enqueued
from tests.support.processes import wait_until
from tests.support.snapshots import all_runs, write


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    return load_settings(environ | {"MNEME_SCHEDULES__GRACE_SECONDS": "0"})


@pytest.fixture
def go(settings: Settings, engine: Engine, broker: redis.Redis) -> Callable[[], dict[str, object]]:
    return lambda: sweep(settings, engine).as_result()


def unswept(scalar: Callable[..., Any]) -> int:
    return scalar("select count(*) from mneme.summary_nodes where swept_at is null")


def test_what_is_due_is_enqueued_once_and_what_is_not_is_marked(
    engine: Engine, go: Callable[[], Any], broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    write(engine, "due", range(5))
    write(engine, "not due", range(4))
    assert go() == {"expired": 0, "enqueued": 1, "marked": 4, "unmarked": 0}
    assert broker.llen("mneme") == 1
    assert go() == {"expired": 0, "enqueued": 0, "marked": 0, "unmarked": None}
    assert unswept(scalar) == 5  # found again, should the message be lost
    scalar("update mneme.sessions set enqueued_at = enqueued_at - interval '121 s'")
    assert go()["enqueued"] == 1
    commit(engine, must_claim(engine, "due"))
    scalar("update mneme.sessions set enqueued_at = null")
    assert unswept(scalar) == 1  # the new node; what was folded is nothing for the sweep any more
    assert go() == {"expired": 0, "enqueued": 0, "marked": 1, "unmarked": None}
    assert unswept(scalar) == 0


def test_a_retry_of_another_level_than_the_one_due_does_not_keep_others_from_their_turn(
    engine: Engine, scalar: Callable[..., Any]
) -> None:
    """The last fold of level 2 made level 3 due, which backs off now: of level 2 there is nothing to be retried."""
    three, one_at_a_time = MnemeSettings(max_level=3), ScheduleSettings(grace_seconds=0, sweep_batch=1)
    for start in range(0, 25, 5):
        write(engine, "stale", range(start, start + 5))
        commit(engine, must_claim(engine, "stale"))
    scalar("update mneme.compaction_runs set retry_at = now() - interval '1 h' where started_at ="
           " (select max(started_at) from mneme.compaction_runs)")  # fmt: skip
    fail(engine, must_claim(engine, "stale", settings=three), "transient")
    scalar("update mneme.compaction_runs set retry_at = now() + interval '1 h' where level = 3")
    write(engine, "due", range(5))
    fail(engine, must_claim(engine, "due"), "transient")
    scalar("update mneme.compaction_runs set retry_at = now() where session_id = 'due'")
    scalar("update mneme.summary_nodes set swept_at = now()")
    taken = []
    for _ in range(2):
        with transaction(engine) as connection:
            swept = sweep_once(connection, three, one_at_a_time, SERVER, room=10)
        taken += [each.session_id for each in swept.taken]
    assert taken == ["due"]
    assert scalar("select retry_at > now() from mneme.compaction_runs where level = 3")


def test_young_nodes_are_left_to_their_own_messages(
    environ: dict[str, str], engine: Engine, broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    settings = load_settings(environ)
    write(engine, "s", range(5))
    assert sweep(settings, engine).enqueued == 0
    scalar("update mneme.summary_nodes set created_at = created_at - interval '11 s'")
    assert sweep(settings, engine).enqueued == 1


def test_a_node_that_comes_after_the_marking_makes_its_session_due(
    engine: Engine, go: Callable[[], Any], scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(4))
    assert go()["marked"] == 4
    write(engine, "s", [4])
    assert go()["enqueued"] == 1


def test_a_dead_lease_is_closed_and_its_session_enqueued(
    engine: Engine, go: Callable[[], Any], scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    must_claim(engine)
    assert go() == {"expired": 0, "enqueued": 0, "marked": 5, "unmarked": 0}  # held by the run, where it will be found
    expire(scalar)
    assert go() == {"expired": 1, "enqueued": 1, "marked": 0, "unmarked": None}
    (run,) = all_runs(engine, "s")
    assert (run.state, run.crashes) == ("expired", 1)


def test_a_session_that_backs_off_is_found_when_its_time_has_come(
    engine: Engine, go: Callable[[], Any], scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    fail(engine, must_claim(engine), "transient")
    scalar("update mneme.compaction_runs set retry_at = now() + interval '1 h'")
    assert go() == {"expired": 0, "enqueued": 0, "marked": 5, "unmarked": 0}
    scalar("update mneme.compaction_runs set retry_at = now()")
    assert go()["enqueued"] == 1


def test_a_retry_that_is_no_longer_due_is_forgotten(
    engine: Engine, go: Callable[[], Any], scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    fail(engine, must_claim(engine), "transient")
    scalar("update mneme.summary_nodes set dismissed_at = now(), dismissed_reason = 'declined' where span_start = 1")
    assert go()["enqueued"] == 0
    assert all_runs(engine, "s")[0].retry_at is None


def test_what_is_left_over_after_a_fold_is_found_without_its_message(
    engine: Engine, go: Callable[[], Any], settings: Settings, scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(26))
    claimed = must_claim(engine)
    assert go()["marked"] == 26
    with transaction(engine) as connection:
        runs.commit_fold(connection, claimed, runs.Fold("x", "m", "p"), runs.Usage())
        assert runs.count_again(connection, "s", claimed.run_id, settings.mneme).due
    assert go()["enqueued"] == 1


def test_a_node_seen_while_its_run_is_ending_is_not_left_to_that_run(
    engine: Engine, settings: Settings, broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    """The run has counted already, without the new nodes, and has not committed yet: a sweep now must not mark them."""
    write(engine, "s", range(5))
    claimed = must_claim(engine)
    with transaction(engine) as ending:
        runs.commit_fold(ending, claimed, runs.Fold("x", "m", "p"), runs.Usage())
        assert not runs.count_again(ending, "s", claimed.run_id, settings.mneme).due
        late = write(engine, "s", range(5, 10))
        with transaction(engine) as connection:
            swept = sweep_once(connection, settings.mneme, settings.schedules, SERVER, room=1000)
        assert (swept.taken, swept.marked) == ([], 0)
    assert scalar("select count(*) from mneme.summary_nodes where swept_at is null and level = 1") == len(late)
    assert sweep(settings, engine).enqueued == 1


def test_paused_sessions_are_left_alone_and_do_not_hold_up_others(
    engine: Engine, go: Callable[[], Any], scalar: Callable[..., Any]
) -> None:
    write(engine, "paused", range(5))
    write(engine, "s", range(5))
    scalar("update mneme.sessions set paused_at = now() where id = 'paused'")
    assert (go()["enqueued"], unswept(scalar)) == (1, 5)  # what waits in the paused one is not read again each time
    scalar("update mneme.sessions set paused_at = null where id = 'paused'")
    assert unswept(scalar) == 6
    assert go()["enqueued"] == 1


def test_a_session_that_is_being_resumed_is_neither_marked_nor_lost(
    engine: Engine, settings: Settings, scalar: Callable[..., Any], broker: redis.Redis
) -> None:
    write(engine, "s", range(5))
    scalar("update mneme.sessions set paused_at = now()")
    with engine.begin() as resuming:
        resuming.execute(text("update mneme.sessions set paused_at = null"))
        with transaction(engine) as connection:
            swept = sweep_once(connection, settings.mneme, settings.schedules, SERVER, room=10)
        assert (swept.taken, swept.marked) == ([], 0)
    assert sweep(settings, engine).enqueued == 1


def test_everything_is_counted_hourly_and_after_a_change_of_thresholds(
    environ: dict[str, str], engine: Engine, go: Callable[[], Any], scalar: Callable[..., Any], broker: redis.Redis
) -> None:
    write(engine, "s", range(4))
    assert go() == {"expired": 0, "enqueued": 0, "marked": 4, "unmarked": 0}
    lower = load_settings(environ | {"MNEME_SCHEDULES__GRACE_SECONDS": "0", "MNEME_MNEME__L2_SNAPSHOT_THRESHOLD": "3"})
    assert sweep(lower, engine).as_result() == {"expired": 0, "enqueued": 1, "marked": 0, "unmarked": 1}
    # Marked by a fault that nobody foresaw: found within the hour.
    scalar("update mneme.summary_nodes set swept_at = now()")
    scalar("update mneme.sessions set enqueued_at = null")
    assert sweep(lower, engine).enqueued == 0
    scalar("update mneme.sweep_state set full_counted_at = now() - interval '1 h'")
    assert sweep(lower, engine).enqueued == 1


def test_a_broker_that_is_down_gives_the_sessions_back(
    environ: dict[str, str], engine: Engine, go: Callable[[], Any], scalar: Callable[..., Any]
) -> None:
    write(engine, "a", range(5))
    write(engine, "b", range(5))
    nowhere = load_settings(environ | {"MNEME_SCHEDULES__GRACE_SECONDS": "0", "REDIS_URL": "redis://127.0.0.1:1/0"})
    assert sweep(nowhere, engine).enqueued == 0
    assert scalar("select count(*) from mneme.sessions where enqueued_at is not null") == 0
    assert go()["enqueued"] == 2


def test_one_locked_node_does_not_hold_up_the_others(
    environ: dict[str, str], engine: Engine, go: Callable[[], Any], scalar: Callable[..., Any], broker: redis.Redis
) -> None:
    write(engine, "locked", range(5))
    write(engine, "free", range(5))
    scalar("update mneme.summary_nodes set swept_at = now() where session_id = 'locked'")
    with transaction(engine) as connection:
        connection.execute(text("select from mneme.summary_nodes where session_id = 'locked' for update"))
        assert go()["enqueued"] == 1
    assert scalar("select enqueued_at is not null from mneme.sessions where id = 'free'")


def test_a_node_is_not_left_to_a_retry_that_another_sweep_is_taking_away(
    engine: Engine, settings: Settings, scalar: Callable[..., Any], broker: redis.Redis
) -> None:
    write(engine, "s", range(5))
    fail(engine, must_claim(engine), "transient")
    scalar("update mneme.summary_nodes set dismissed_at = now(), dismissed_reason = 'declined' where span_start = 1")
    with transaction(engine) as first:
        assert (
            sweep_once(first, settings.mneme, settings.schedules, SERVER, room=1000).taken == []
        )  # not due: its retry_at is forgotten
        write(engine, "s", [5])
        with transaction(engine) as second:
            swept = sweep_once(second, settings.mneme, settings.schedules, SERVER, room=1000)
        assert [taken.session_id for taken in swept.taken] == ["s"]
    assert scalar("select count(*) from mneme.summary_nodes where swept_at is null and span_start = 51") == 1


def test_sweeps_at_once_enqueue_each_session_once(engine: Engine, settings: Settings, broker: redis.Redis) -> None:
    for number in range(40):
        write(engine, f"s{number}", range(5))
    reports: list[Any] = []
    threads = [threading.Thread(target=lambda: reports.append(sweep(settings, engine))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(reports) == 4
    assert sum(report.enqueued for report in reports) == 40
    assert broker.llen("mneme") == 40


def test_a_sweep_takes_more_than_one_round_and_the_oldest_first(
    environ: dict[str, str], engine: Engine, broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    small = load_settings(environ | {"MNEME_SCHEDULES__GRACE_SECONDS": "0", "MNEME_SCHEDULES__SWEEP_BATCH": "7"})
    for number in range(6):
        write(engine, f"s{number}", range(5 if number % 2 else 3))
    with transaction(engine) as connection:
        first = sweep_once(connection, small.mneme, small.schedules, SERVER, room=1000)
    assert [taken.session_id for taken in first.taken] == ["s1"]
    assert (first.marked, first.more) == (3, True)
    report = sweep(small, engine)
    assert (report.enqueued, report.marked) == (2, 6)
    wait_until(lambda: broker.llen("mneme") == 2)


def test_an_open_breaker_is_obeyed_and_tried_with_one_session(
    engine: Engine, environ: dict[str, str], broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    settings = load_settings(environ | {"MNEME_SCHEDULES__GRACE_SECONDS": "0", "MNEME_LLM__MODEL": "m"})
    for session_id in ("a", "b", "c", "probe"):
        write(engine, session_id, range(5))
    scalar("update mneme.sessions set enqueued_at = now() where id = 'probe'")
    scalar(
        "insert into mneme.breakers (base_url, model, held_until) values (:url, 'm', now() + interval '1 h')",
        url=server_of(settings).base_url,
    )
    assert (sweep(settings, engine).enqueued, unswept(scalar)) == (0, 20)  # held is not forgotten
    scalar("update mneme.breakers set held_until = now()")
    assert sweep(settings, engine).enqueued == 1
    scalar("update mneme.breakers set probe_run_id = :run_id", run_id=must_claim(engine, "probe").run_id)
    assert sweep(settings, engine).enqueued == 0
    scalar("delete from mneme.breakers")
    assert sweep(settings, engine).enqueued == 2
    assert enqueued(broker, 3) == ["a", "b", "c"]


def test_a_queue_that_the_workers_do_not_keep_up_with_is_not_filled_with_copies(
    engine: Engine, environ: dict[str, str], broker: redis.Redis
) -> None:
    """FAILURES 11: without workers the queue stays as long as a sweep's batch, however often beat comes round."""
    settings = load_settings(
        environ | {"MNEME_SCHEDULES__GRACE_SECONDS": "0", "MNEME_SCHEDULES__SWEEP_BATCH": "200"}
    )  # fmt: skip
    for number in range(20):
        write(engine, f"s{number:02}", range(5))
    broker.lpush("mneme", *(b"{}" for _ in range(197)))
    assert [sweep(settings, engine).enqueued for _ in range(3)] == [3, 0, 0]
    broker.ltrim("mneme", 0, 2)
    assert enqueued(broker, 3) == ["s00", "s01", "s02"]  # the oldest
