"""Claiming and ending, with real transactions that wait for each other."""

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine

from models import runs, transaction
from models.breaker import Server
from models.claims import InputBudget, Reviewed, Skip, claim
from models.runs import Claim, Fold, LostLease, Usage
from models.settings import MnemeSettings
from tests.support.processes import wait_until
from tests.support.snapshots import active, all_runs, node, write

SETTINGS = MnemeSettings()
BUDGET = InputBudget(tokens=90_000, tokens_per_node=80)
SERVER = Server("http://model.test/v1", "m")
FOLD = Fold("A short summary.", "m", "p1")


def try_claim(
    engine: Engine, session_id: str = "s", settings: MnemeSettings = SETTINGS, budget: InputBudget = BUDGET
) -> Any:
    with transaction(engine) as connection:
        counted = runs.count(connection, session_id, settings)
    return claim(engine, counted, settings, budget, worker="w", server=SERVER)


def must_claim(engine: Engine, session_id: str = "s", **more: Any) -> Claim:
    claimed = try_claim(engine, session_id, **more)
    assert isinstance(claimed, Claim), claimed
    return claimed


def commit(engine: Engine, claimed: Claim) -> Any:
    with transaction(engine) as connection:
        return runs.commit_fold(connection, claimed, FOLD, Usage(1, 2, 3))


def fail(engine: Engine, claimed: Claim, kind: str = "content") -> None:
    with transaction(engine) as connection:
        runs.close_failed(connection, claimed, Usage(1, 2, 3), kind=kind, error="x", retry_seconds=0)


def decline(engine: Engine, claimed: Claim) -> None:
    with transaction(engine) as connection:
        runs.close_declined(connection, claimed, Usage(1, 2, 3))


def expire(scalar: Callable[..., object]) -> None:
    scalar("update mneme.compaction_runs set lease_expires_at = now() - interval '1 s' where state = 'running'")


def numbers(claimed: Claim) -> list[int]:
    return [n.span_start // 10 for n in claimed.batch]


# ------------------------------------------------------------------------------------------------ one at a time


def test_of_many_claims_at_once_one_wins(engine: Engine) -> None:
    write(engine, "s", range(5))
    barrier = threading.Barrier(12)
    results: list[object] = []

    def go() -> None:
        barrier.wait()
        results.append(try_claim(engine))

    threads = [threading.Thread(target=go) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(isinstance(r, Claim) for r in results) == 1
    assert sum(r == Skip("already_running", 2, 5) for r in results) == 11
    assert len(all_runs(engine, "s")) == 1


def test_what_is_not_due_after_all_leaves_no_trace(engine: Engine, scalar: Callable[..., object]) -> None:
    write(engine, "s", range(5))
    with transaction(engine) as connection:
        counted = runs.count(connection, "s", SETTINGS)
    scalar("update mneme.summary_nodes set dismissed_at = now(), dismissed_reason = 'declined' where span_start = 1")
    assert claim(engine, counted, SETTINGS, BUDGET, worker="w", server=SERVER) == Skip("below_threshold", 2, 4)
    assert all_runs(engine, "s") == []


def test_paused_and_backing_off_are_obeyed_and_leave_no_trace(engine: Engine, scalar: Callable[..., object]) -> None:
    write(engine, "s", range(5))
    scalar("update mneme.sessions set paused_at = now()")
    assert try_claim(engine) == Skip("paused", 2, 5)
    scalar("update mneme.sessions set paused_at = null")
    fail(engine, must_claim(engine), "transient")
    scalar("update mneme.compaction_runs set retry_at = now() + interval '1 h'")
    assert try_claim(engine) == Skip("backing_off", 2, 5)
    assert len(all_runs(engine, "s")) == 1


@contextmanager
def committing(engine: Engine, claimed: Claim):
    """A holder in the middle of its commit: everything written, nothing committed yet."""
    with transaction(engine) as connection:
        runs.commit_fold(connection, claimed, FOLD, Usage(1, 2, 3))
        yield connection


def waiting_for_locks(scalar: Callable[..., object]) -> bool:
    return bool(
        scalar("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")
    )


def test_a_claim_that_waits_for_an_expired_holders_commit_does_not_fold_again(
    engine: Engine, scalar: Callable[..., object]
) -> None:
    """FACTS: one statement that counted and claimed took five nodes that had just been folded."""
    write(engine, "s", range(5))
    holder = must_claim(engine)
    expire(scalar)
    results: list[object] = []
    second = threading.Thread(target=lambda: results.append(try_claim(engine)))
    with committing(engine, holder):
        second.start()
        wait_until(lambda: waiting_for_locks(scalar), what="the second claim to wait")
        assert results == []
    second.join(10)
    assert results == [Skip("below_threshold", 2, 0)]
    assert [run.state for run in all_runs(engine, "s")] == ["succeeded"]
    assert len(active(engine, "s")) == 1


def test_a_claim_that_waits_in_vain_leaves_the_holder_to_it(engine: Engine, scalar: Callable[..., object]) -> None:
    write(engine, "s", range(5))
    holder = must_claim(engine)
    expire(scalar)
    with committing(engine, holder):
        began = time.monotonic()
        assert try_claim(engine) == Skip("already_running", 2, 5)
        assert 1.5 < time.monotonic() - began < 6  # the lock timeout of 2 s


def test_an_expired_lease_is_taken_over_and_the_late_holder_writes_nothing(
    engine: Engine, scalar: Callable[..., object]
) -> None:
    write(engine, "s", range(5))
    late = must_claim(engine)
    expire(scalar)
    second = must_claim(engine)
    with pytest.raises(LostLease):
        commit(engine, late)
    with pytest.raises(LostLease):
        decline(engine, late)
    with pytest.raises(LostLease):
        fail(engine, late)
    commit(engine, second)
    first_run, second_run = all_runs(engine, "s")
    assert (first_run.state, first_run.crashes, first_run.node_id) == ("expired", 1, None)
    assert (second_run.state, second_run.attempt) == ("succeeded", 2)
    assert len(active(engine, "s")) == 1


def test_an_expired_lease_that_nobody_took_may_still_commit(engine: Engine, scalar: Callable[..., object]) -> None:
    """State decides, not time."""
    write(engine, "s", range(5))
    claimed = must_claim(engine)
    expire(scalar)
    commit(engine, claimed)
    assert [run.state for run in all_runs(engine, "s")] == ["succeeded"]


@pytest.mark.parametrize(
    "gone",
    ["dismissed_at = now(), dismissed_reason = 'restored'", "retired_at = now(), retired_reason = 'restored'"],
)
def test_an_input_that_is_gone_rolls_the_whole_commit_back(
    engine: Engine, scalar: Callable[..., object], gone: str
) -> None:
    write(engine, "s", range(5))
    claimed = must_claim(engine)
    scalar(f"update mneme.summary_nodes set {gone} where span_start = 21")
    with pytest.raises(LostLease):
        commit(engine, claimed)
    assert scalar("select count(*) from mneme.summary_nodes where level = 2") == 0
    assert scalar("select count(*) from mneme.summary_nodes where superseded") == 0
    assert scalar("select count(*) from mneme.messages") == 5
    assert [run.state for run in all_runs(engine, "s")] == ["running"]


def test_the_claim_counts_again_after_an_input_was_declined_by_hand(
    engine: Engine, scalar: Callable[..., object]
) -> None:
    write(engine, "s", range(5))
    claimed = must_claim(engine)
    commit(engine, claimed)
    run = all_runs(engine, "s")[0]
    assert run.input_ids == claimed.input_ids
    assert (run.llm_calls, run.prompt_tokens, run.completion_tokens) == (1, 2, 3)
    assert (run.attempt, run.crashes, run.content_failures, run.retry_at) == (1, 0, 0, None)


def test_writers_are_not_held_up_by_a_fold_that_is_committing(engine: Engine) -> None:
    """``for no key update`` does not conflict with the foreign keys of those who write meanwhile."""
    write(engine, "s", range(5))
    with committing(engine, must_claim(engine)):
        began = time.monotonic()
        write(engine, "s", [5])
        assert time.monotonic() - began < 1


# ------------------------------------------------------------------------------------------------ the batch


def test_the_oldest_come_first_and_no_more_than_a_batch(engine: Engine) -> None:
    write(engine, "s", list(range(49, -1, -1)))
    claimed = must_claim(engine)
    assert numbers(claimed) == list(range(20))
    assert claimed.uncovered == 21  # the count stops at one more than a batch


def test_a_late_snapshot_inside_an_old_range_goes_into_the_next_fold(engine: Engine) -> None:
    write(engine, "s", [0, 1, 3, 4, 5])
    commit(engine, must_claim(engine))
    write(engine, "s", [2, 6, 7, 8, 9])
    assert numbers(must_claim(engine)) == [2, 6, 7, 8, 9]


def test_what_does_not_fit_waits_and_is_never_cut(engine: Engine) -> None:
    nodes = write(engine, "s", range(9))
    cost = BUDGET.cost(nodes[0])
    small = InputBudget(tokens=cost * 4 + cost // 2, tokens_per_node=80)
    claimed = must_claim(engine, budget=small)
    assert numbers(claimed) == [0, 1, 2, 3]
    assert [n.content for n in claimed.batch] == [n.content for n in nodes[:4]]


def test_a_level_that_became_due_below_goes_first(engine: Engine) -> None:
    three = MnemeSettings(max_level=3)
    for start in range(0, 25, 5):
        write(engine, "s", range(start, start + 5))
        commit(engine, must_claim(engine))
    with transaction(engine) as connection:
        counted = runs.count(connection, "s", three)
    assert counted.level == 3
    write(engine, "s", range(30, 35))
    claimed = claim(engine, counted, three, BUDGET, worker="w", server=SERVER)
    assert isinstance(claimed, Claim)
    assert claimed.level == 2


def test_one_that_alone_exceeds_the_window_is_dismissed_and_the_rest_goes_on(engine: Engine) -> None:
    write(engine, "s", range(6))
    giant = write(engine, "s", [6], content="giant " * 3000)[0]
    write(engine, "s", [7])
    small = InputBudget(tokens=2000, tokens_per_node=80)
    reviewed = try_claim(engine, budget=small)
    assert isinstance(reviewed, Reviewed)
    assert (reviewed.reason, reviewed.dismissed, reviewed.uncovered) == ("too_large", 1, 8)
    dismissed = node(engine, giant.id)
    assert (dismissed.dismissed_reason, dismissed.superseded) == ("too_large", False)
    run = all_runs(engine, "s")[0]
    assert (run.state, run.error_kind, run.llm_calls) == ("declined", "too_large", 0)
    assert run.retry_at is not None  # still due, held by nothing: where the sweep looks
    assert numbers(must_claim(engine, budget=small)) == [0, 1, 2, 3, 4, 5, 7]


def test_declined_nodes_ride_along_as_at_most_half(engine: Engine) -> None:
    write(engine, "s", range(8))
    decline(engine, must_claim(engine))
    assert isinstance(try_claim(engine), Skip)  # no second call about them alone
    write(engine, "s", range(10, 15))
    write(engine, "s", [40])
    claimed = must_claim(engine)
    # Six new ones, the oldest six of the eight declined ones, in order.
    assert numbers(claimed) == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 40]
    new_node = commit(engine, claimed)
    for n in claimed.batch:
        covered = node(engine, n.id)
        assert (covered.superseded_by, covered.dismissed_at) == (new_node, None)


def test_declined_nodes_after_the_batch_do_not_ride(engine: Engine) -> None:
    write(engine, "s", range(20, 25))
    decline(engine, must_claim(engine))
    write(engine, "s", range(5))
    assert numbers(must_claim(engine)) == [0, 1, 2, 3, 4]


def test_riders_never_push_a_batch_beyond_its_limits(engine: Engine) -> None:
    write(engine, "s", range(5))
    decline(engine, must_claim(engine))
    nodes = write(engine, "s", range(10, 28))
    claimed = must_claim(engine)
    assert numbers(claimed) == [0, 1, *range(10, 28)]
    commit(engine, claimed)
    cost = BUDGET.cost(nodes[0])
    write(engine, "s", range(30, 36))
    small = InputBudget(tokens=cost * 7 + 5, tokens_per_node=80)
    claimed = must_claim(engine, budget=small)
    assert sum(small.cost(n) for n in claimed.batch) <= small.tokens


def test_higher_levels_fold_when_the_settings_allow(engine: Engine) -> None:
    three = MnemeSettings(max_level=3)
    for start in range(0, 25, 5):
        write(engine, "s", range(start, start + 5))
        commit(engine, must_claim(engine))
    assert isinstance(try_claim(engine), Skip)
    claimed = must_claim(engine, settings=three)
    assert (claimed.level, len(claimed.batch)) == (3, 5)
    commit(engine, claimed)
    assert [n.level for n in active(engine, "s")] == [3]
    write(engine, "s", range(30, 35))
    assert must_claim(engine, settings=three).level == 2  # the lowest level that is due


# ------------------------------------------------------------------------------------------------ counters


def test_content_failures_halve_the_batch_and_success_resets(engine: Engine) -> None:
    write(engine, "s", range(20))
    fail(engine, must_claim(engine))
    second = must_claim(engine)
    assert numbers(second) == list(range(10))
    fail(engine, second)
    third = must_claim(engine)
    assert (numbers(third), third.attempt) == (list(range(5)), 3)
    fail(engine, third)
    fourth = must_claim(engine)
    assert numbers(fourth) == [0, 1]
    fail(engine, fourth)
    fifth = must_claim(engine)
    assert numbers(fifth) == [0, 1]  # at least two
    assert all_runs(engine, "s")[-1].content_failures == 4
    commit(engine, fifth)
    after = must_claim(engine)
    assert (len(after.batch), after.attempt) == (18, 1)
    assert all_runs(engine, "s")[-1].content_failures == 0


def test_transient_failures_neither_halve_nor_count_as_content(engine: Engine) -> None:
    write(engine, "s", range(8))
    fail(engine, must_claim(engine), "transient")
    again = must_claim(engine)
    assert (len(again.batch), again.attempt) == (8, 2)
    assert all_runs(engine, "s")[-1].content_failures == 0


def test_a_batch_that_kills_its_worker_is_halved_and_in_the_end_dismissed(
    engine: Engine, scalar: Callable[..., object]
) -> None:
    write(engine, "s", range(20))
    sizes = []
    for _ in range(5):
        sizes.append(len(must_claim(engine).batch))
        expire(scalar)
    assert sizes == [20, 20, 10, 5, 2]
    reviewed = try_claim(engine)
    assert isinstance(reviewed, Reviewed)
    assert (reviewed.reason, reviewed.dismissed) == ("crashes", 2)
    after = must_claim(engine)
    assert numbers(after) == list(range(2, 20))
    assert all_runs(engine, "s")[-1].crashes == 0


def test_a_released_run_counts_for_nothing(engine: Engine) -> None:
    write(engine, "s", range(5))
    first = must_claim(engine)
    with transaction(engine) as connection:
        assert runs.release_worker(connection, "someone else") == 0
        assert runs.release_worker(connection, "w") == 1
    with pytest.raises(LostLease):
        commit(engine, first)
    assert must_claim(engine).attempt == 1
    assert all_runs(engine, "s")[-1].crashes == 0


def test_the_newest_run_is_the_state_even_if_the_clock_steps_back(
    engine: Engine, scalar: Callable[..., object]
) -> None:
    write(engine, "s", range(5))
    fail(engine, must_claim(engine), "transient")
    scalar("update mneme.compaction_runs set started_at = now() + interval '1 h'")
    fail(engine, must_claim(engine), "transient")
    assert must_claim(engine).attempt == 3


# ------------------------------------------------------------------------------------------------ counting again


def count_after(engine: Engine, claimed: Claim) -> runs.Count:
    with transaction(engine) as connection:
        runs.commit_fold(connection, claimed, FOLD, Usage())
        return runs.count_again(connection, claimed.session_id, claimed.run_id, SETTINGS)


def test_a_run_that_ends_while_its_session_is_still_due_is_left_for_the_sweep(engine: Engine) -> None:
    write(engine, "s", range(26))
    assert count_after(engine, must_claim(engine)).due
    first = all_runs(engine, "s")[-1]
    assert first.retry_at is not None
    second = must_claim(engine)
    assert all_runs(engine, "s")[0].retry_at is None  # the newest run alone is the session's state
    assert not count_after(engine, second).due
    assert all_runs(engine, "s")[-1].retry_at is None
