"""Caps on spending: obeyed at the claim, by the sweep and in the status alike, and over as the window moves."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from models import runs, transaction
from models.claims import claim
from models.runs import Claim, Usage
from models.settings import MnemeSettings, ScheduleSettings, SpendSettings
from models.status import read_status
from models.sweeping import sweep_once
from tests.models.test_claims import BUDGET, FOLD, SERVER, SETTINGS
from tests.support.snapshots import all_runs, write

ONE_AT_A_TIME = ScheduleSettings(grace_seconds=0, sweep_batch=1, requeue_seconds=1, sweep_seconds=1)


def try_claim(engine: Engine, session_id: str, spend: SpendSettings) -> Any:
    with transaction(engine) as connection:
        counted = runs.count(connection, session_id, SETTINGS)
    return claim(engine, counted, SETTINGS, BUDGET, worker="w", server=SERVER, spend=spend)


def fold(engine: Engine, session_id: str, start: int, tokens: int = 1000) -> None:
    """Write five snapshots and fold them at a cost, a fifth of it for the answer."""
    write(engine, session_id, range(start, start + 5))
    claimed = try_claim(engine, session_id, SpendSettings())
    with transaction(engine) as connection:
        runs.commit_fold(connection, claimed, FOLD, Usage(1, tokens - tokens // 5, tokens // 5))


def sweep(engine: Engine, spend: SpendSettings, schedules: ScheduleSettings = ONE_AT_A_TIME) -> list[str]:
    with transaction(engine) as connection:
        swept = sweep_once(connection, MnemeSettings(), schedules, SERVER, room=10, spend=spend)
    return [taken.session_id for taken in swept.taken]


@pytest.mark.parametrize(
    ("spend", "over"),
    [
        (SpendSettings(tokens_per_hour=2000), "61 min"),
        (SpendSettings(tokens_per_day=2000), "24 h 1 min"),
        (SpendSettings(session_tokens_per_hour=2000), "61 min"),
        (SpendSettings(session_tokens_per_day=2000), "24 h 1 min"),
    ],
    ids=str,
)
def test_a_cap_holds_until_the_window_has_moved(
    engine: Engine, scalar: Callable[..., Any], spend: SpendSettings, over: str
) -> None:
    fold(engine, "s", 0)
    write(engine, "s", range(5, 10))
    below = try_claim(engine, "s", spend)
    assert isinstance(below, Claim)
    with transaction(engine) as connection:
        runs.commit_fold(connection, below, FOLD, Usage(1, 900, 100))
    write(engine, "s", range(10, 15))
    held = try_claim(engine, "s", spend)
    assert (held.outcome, len(all_runs(engine, "s"))) == ("held", 2)
    with transaction(engine) as connection:
        waiting = read_status(connection, SETTINGS, SERVER, spend).waiting
    ((cap, limit),) = [(name, value) for name, value in spend.model_dump().items() if value]
    assert {hold: (each.sessions, each.cap) for hold, each in waiting.items()} == {"held": (1, cap)}
    assert limit == 2000
    scalar(
        "update mneme.compaction_runs set started_at = started_at - cast(:d as interval),"
        " finished_at = finished_at - cast(:d as interval)", d=over,
    )  # fmt: skip
    assert isinstance(try_claim(engine, "s", spend), Claim)


def test_the_cap_of_a_session_holds_no_other(engine: Engine) -> None:
    fold(engine, "greedy", 0)
    for session_id in ("greedy", "modest"):
        write(engine, session_id, range(10, 15))
    spend = SpendSettings(session_tokens_per_hour=1000)
    assert try_claim(engine, "greedy", spend).outcome == "held"
    assert isinstance(try_claim(engine, "modest", spend), Claim)


def test_what_failed_counts_too(engine: Engine) -> None:
    write(engine, "s", range(5))
    claimed = try_claim(engine, "s", SpendSettings())
    with transaction(engine) as connection:
        runs.close_failed(connection, claimed, Usage(3, 900, 100), kind="content", error="x", retry_seconds=0)
    assert try_claim(engine, "s", SpendSettings(tokens_per_hour=1000)).outcome == "held"


def test_sessions_at_their_own_cap_do_not_keep_others_from_their_turn(
    engine: Engine, scalar: Callable[..., Any]
) -> None:
    """One node at a time: the greedy session's is the oldest, and would be looked at for ever."""
    fold(engine, "greedy", 0)
    scalar("update mneme.summary_nodes set swept_at = now()")
    for session_id in ("greedy", "modest"):
        write(engine, session_id, range(10, 15))
    spend = SpendSettings(session_tokens_per_hour=1000)
    found = [sweep(engine, spend) for _ in range(8)]
    assert ["modest"] in found
    assert ["greedy"] not in found
    scalar("update mneme.compaction_runs set finished_at = finished_at - interval '61 min', retry_at = now()")
    scalar("update mneme.sessions set enqueued_at = null")
    assert any("greedy" in sweep(engine, spend) for _ in range(4))
    assert isinstance(try_claim(engine, "greedy", spend), Claim)


def test_at_the_cap_of_all_nothing_is_enqueued_and_nothing_forgotten(
    engine: Engine, scalar: Callable[..., Any]
) -> None:
    fold(engine, "s", 0)
    write(engine, "t", range(5))
    spend = SpendSettings(tokens_per_day=1000)
    many = ScheduleSettings(grace_seconds=0)
    assert sweep(engine, spend, many) == []
    assert scalar("select count(*) from mneme.summary_nodes where swept_at is null and session_id = 't'") == 5
    assert sweep(engine, SpendSettings(tokens_per_day=1001), many) == ["t"]


def test_what_a_cancelled_run_had_cost_is_noted(engine: Engine, scalar: Callable[..., Any]) -> None:
    write(engine, "s", range(5))
    claimed = try_claim(engine, "s", SpendSettings())
    scalar("update mneme.compaction_runs set state = 'cancelled', finished_at = now()")
    with transaction(engine) as connection:
        assert not runs.close_released(connection, claimed.run_id, Usage(1, 900, 100))
        runs.note_usage(connection, claimed.run_id, Usage(1, 900, 100))
    assert try_claim(engine, "s", SpendSettings(tokens_per_hour=1000)).outcome == "held"
