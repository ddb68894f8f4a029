"""The breaker: when it opens, whom it lets through, and what closes it. Its clock is turned back by the test."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from models import (
    ConfigurationFailure,
    ContentFailure,
    InputTooLong,
    TransientFailure,
    load_settings,
    runs,
    transaction,
)
from models.breaker import OPENAI, Server, note_answer, note_failure, server_of
from models.claims import Skip
from models.errors import FoldFailed
from models.runs import Claim, Usage
from models.settings import LlmSettings, MnemeSettings, ScheduleSettings
from models.sweeping import unmark_if_time
from tests.models.test_claims import SERVER, commit, expire, fail, must_claim, try_claim
from tests.support.snapshots import all_runs, write

LLM = LlmSettings(breaker_failures=3, breaker_seconds=60)


def failed(engine: Engine, session_id: str, failure: FoldFailed, claimed: Claim | None = None) -> bool:
    """Have a run of the session fail, as the job does."""
    if claimed is None:
        write(engine, session_id, range(5))
        claimed = must_claim(engine, session_id)
    fail(engine, claimed, failure.kind)
    with transaction(engine) as connection:
        return note_failure(connection, SERVER, failure, session_id, claimed.run_id, LLM)


def time_is_up(scalar: Callable[..., Any]) -> None:
    scalar("update mneme.breakers set held_until = now() - interval '1 s'")


def held_for_seconds(scalar: Callable[..., Any]) -> int:
    return round(scalar("select extract(epoch from held_until - changed_at) from mneme.breakers"))


@pytest.fixture
def due(engine: Engine) -> str:
    write(engine, "due", range(5))
    return "due"


def test_a_failure_by_the_settings_holds_every_session_at_once(
    engine: Engine, due: str, scalar: Callable[..., Any]
) -> None:
    assert failed(engine, "a", ConfigurationFailure("401"))
    assert try_claim(engine, due) == Skip("held", 2, 5)
    assert all_runs(engine, due) == []  # held leaves no trace
    assert held_for_seconds(scalar) == 60


def test_failures_of_the_server_hold_after_so_many_sessions_in_a_row(engine: Engine, due: str) -> None:
    assert not failed(engine, "a", TransientFailure("503"))
    assert not failed(engine, "b", TransientFailure("503"))
    assert isinstance(try_claim(engine, due), Claim)
    assert failed(engine, "c", TransientFailure("503"))
    write(engine, "e", range(5))
    assert try_claim(engine, "e") == Skip("held", 2, 5)


def test_one_session_alone_opens_nothing(engine: Engine, due: str, scalar: Callable[..., Any]) -> None:
    """Its prompt may be what the server cannot bear."""
    write(engine, "a", range(5))
    for _ in range(6):
        assert not failed(engine, "a", TransientFailure("500"), must_claim(engine, "a"))
        scalar("update mneme.compaction_runs set retry_at = null")
    assert isinstance(try_claim(engine, due), Claim)


@pytest.mark.parametrize("failure", [ContentFailure("blank"), InputTooLong("413"), TransientFailure("internal error")])
def test_what_says_nothing_of_the_server_is_not_counted(
    engine: Engine, failure: FoldFailed, scalar: Callable[..., Any]
) -> None:
    failure.blame = "nobody"
    for session_id in "abcdef":
        assert not failed(engine, session_id, failure)
    assert scalar("select count(*) from mneme.breakers") == 0


def test_an_answer_in_between_starts_the_count_anew(engine: Engine, scalar: Callable[..., Any]) -> None:
    failed(engine, "a", TransientFailure("503"))
    failed(engine, "b", TransientFailure("503"))
    with transaction(engine) as connection:
        assert not note_answer(connection, SERVER)
    assert scalar("select count(*) from mneme.breakers") == 0
    assert not failed(engine, "c", TransientFailure("503"))


def test_one_probe_at_a_time_and_its_success_makes_everything_due(
    engine: Engine, due: str, scalar: Callable[..., Any]
) -> None:
    failed(engine, "a", ConfigurationFailure("401"))
    assert all_runs(engine, "a")[0].retry_at is not None
    scalar("update mneme.compaction_runs set retry_at = now() + interval '1 h'")
    write(engine, "e", range(5))
    time_is_up(scalar)
    probe = must_claim(engine, due)
    assert try_claim(engine, "e") == Skip("held", 2, 5)
    commit(engine, probe)
    with transaction(engine) as connection:
        assert note_answer(connection, SERVER)
    assert isinstance(try_claim(engine, "e"), Claim)
    assert isinstance(try_claim(engine, "a"), Claim)  # what failed by its settings need not wait for an hour


def test_an_answer_by_other_settings_makes_due_what_failed_by_the_old_ones(
    engine: Engine, due: str, scalar: Callable[..., Any]
) -> None:
    """What mends a wrong model's name is another name: the breaker of the old one is never asked again."""
    failed(engine, "a", ConfigurationFailure("404"))
    with transaction(engine) as connection:
        assert not note_answer(connection, Server(SERVER.base_url, "another model"))
    assert scalar("select retry_at <= clock_timestamp() from mneme.compaction_runs where session_id = 'a'")


def test_an_answer_by_the_same_settings_does_not_hasten_what_they_refuse(
    engine: Engine, due: str, scalar: Callable[..., Any]
) -> None:
    """One session's prompt is refused each time, the others' are not: it waits for its turn."""
    failed(engine, "a", ConfigurationFailure("400"))
    with transaction(engine) as connection:
        note_answer(connection, SERVER)  # closes the breaker
    scalar("update mneme.compaction_runs set retry_at = now() + interval '1 h'")
    with transaction(engine) as connection:
        note_answer(connection, SERVER)
    assert scalar("select retry_at > clock_timestamp() from mneme.compaction_runs where session_id = 'a'")


def test_the_breaker_of_a_server_that_nobody_asks_is_forgotten_after_a_day(
    engine: Engine, scalar: Callable[..., Any]
) -> None:
    failed(engine, "a", ConfigurationFailure("401"))
    for age, left in (("23 h", 1), ("25 h", 0)):
        scalar(
            f"update mneme.breakers set changed_at = now() - interval '{age}', held_until = now() - interval '{age}'"
        )
        scalar("update mneme.sweep_state set full_counted_at = null")
        with transaction(engine) as connection:
            unmark_if_time(connection, MnemeSettings(), ScheduleSettings())
        assert scalar("select count(*) from mneme.breakers") == left


def test_two_claims_for_the_probe(engine: Engine, due: str, scalar: Callable[..., Any]) -> None:
    failed(engine, "a", ConfigurationFailure("401"))
    sessions = ["p0", "p1", "p2", "p3"]
    for session_id in sessions:
        write(engine, session_id, range(5))
    time_is_up(scalar)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda s=s: results.append(try_claim(engine, s))) for s in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(result).__name__ for result in results) == ["Claim", "Skip", "Skip", "Skip"]


def test_each_failed_probe_holds_for_twice_as_long_up_to_sixteen_times(
    engine: Engine, due: str, scalar: Callable[..., Any]
) -> None:
    failed(engine, "a", ConfigurationFailure("401"))
    for seconds in (120, 240, 480, 960, 960):
        time_is_up(scalar)
        scalar("update mneme.compaction_runs set retry_at = null")
        probe = must_claim(engine, due)
        assert failed(engine, due, TransientFailure("503"), probe)
        assert held_for_seconds(scalar) == seconds


def test_calls_that_were_under_way_when_it_opened_do_not_prolong_it(engine: Engine, scalar: Callable[..., Any]) -> None:
    for session_id in ("a", "b"):
        write(engine, session_id, range(5))
    first, second = must_claim(engine, "a"), must_claim(engine, "b")
    assert failed(engine, "a", ConfigurationFailure("401"), first)
    until = scalar("select held_until from mneme.breakers")
    assert not failed(engine, "b", ConfigurationFailure("401"), second)
    assert scalar("select held_until from mneme.breakers") == until


def test_a_probe_that_never_comes_back_is_followed_by_another(
    engine: Engine, due: str, scalar: Callable[..., Any]
) -> None:
    failed(engine, "a", ConfigurationFailure("401"))
    time_is_up(scalar)
    must_claim(engine, due)
    write(engine, "e", range(5))
    assert try_claim(engine, "e") == Skip("held", 2, 5)
    expire(scalar)
    assert isinstance(try_claim(engine, "e"), Claim)


def test_a_probe_that_ends_without_a_word_of_the_server_is_followed_by_another_at_once(
    engine: Engine, due: str, scalar: Callable[..., Any]
) -> None:
    failed(engine, "a", ConfigurationFailure("401"))
    write(engine, "e", range(5))
    for session_id, failure in ((due, TransientFailure("internal error")), ("e", TransientFailure("no commit"))):
        time_is_up(scalar)
        failure.blame = "nobody"
        probe = must_claim(engine, session_id)
        assert not failed(engine, session_id, failure, probe)
    write(engine, "f", range(5))
    probe = must_claim(engine, "f")
    with transaction(engine) as connection:
        runs.close_released(connection, probe.run_id, Usage())
    assert isinstance(try_claim(engine, "f"), Claim)


def test_whom_it_belongs_to() -> None:
    plain = {"DATABASE_URL": "postgresql://h/d", "MNEME_LLM__MODEL": "m"}
    assert server_of(load_settings(plain)) == Server(OPENAI, "m")
    with_key = plain | {"OPENAI_BASE_URL": "https://user:secret@gateway.test/v1?api-key=secret2"}
    assert "secret" not in server_of(load_settings(with_key)).base_url
    assert server_of(load_settings(plain | {"MNEME_LLM__MODEL": "extract"})) == Server("", "extract")
