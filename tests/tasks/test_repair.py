"""An extract in place of a model's answer: when it is written, that it stays apart, and how it is redone."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from models import SettingsError, load_settings, transaction
from models.breaker import server_of
from models.doctor import diagnose
from models.repairs import NotClaimed, claim_repair
from models.settings import Settings
from tasks import L2Runner
from tasks.repair import Outcome, RepairReport, redo_all, repair
from tests.models.test_claims import try_claim
from tests.support import model_server as says
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import celery, celery_worker, mneme, process, run, wait_until
from tests.support.snapshots import active, all_runs, node, write

USELESS = says.saves("   ")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
def variables(environ: dict[str, str], server: ModelServer) -> dict[str, str]:
    return environ | {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url, "MNEME_MNEME__CONTENT_ATTEMPTS": "2"}


@pytest.fixture
def settings(variables: dict[str, str]) -> Settings:
    return load_settings(variables)


@pytest.fixture
def extracted(
    engine: Engine, settings: Settings, server: ModelServer, broker: redis.Redis, scalar: Callable[..., Any]
) -> Callable[..., Any]:
    """Have the model fail until a session's five snapshots are an extract; return that node."""

    def make(session_id: str = "s") -> Any:
        write(engine, session_id, range(5))
        server.answer = USELESS
        with pytest.raises(Exception, match="blank"):
            L2Runner(session_id, settings=settings, engine=engine).run()
        scalar("update mneme.compaction_runs set retry_at = now() where state = 'failed'")
        # The second run has half of the batch, and is the last that is tried.
        report = L2Runner(session_id, settings=settings, engine=engine).run()
        server.calls.clear()
        return node(engine, report.node)

    return make


def sound(engine: Engine, settings: Settings) -> bool:
    return all(finding.violations == 0 for finding in diagnose(engine, settings))


def redo(engine: Engine, settings: Settings, **more: Any) -> tuple[RepairReport, list[Outcome]]:
    outcomes: list[Outcome] = []
    report = redo_all(settings, engine, told=lambda degraded, outcome: outcomes.append(outcome), **more)
    return report, outcomes


def test_after_content_attempts_the_extract_stands_in_and_is_marked(
    engine: Engine, settings: Settings, extracted: Callable[..., Any]
) -> None:
    made = extracted()
    assert (made.degraded, made.compaction_level, made.model, made.level) == (True, 3, "extract", 2)
    assert len(made.parent_node_ids) == 2
    last = all_runs(engine, "s")[-1]
    assert (last.state, last.error_kind, last.node_id, last.content_failures) == ("succeeded", "content", made.id, 0)
    assert "blank" in last.error
    assert sound(engine, settings)


def test_extracts_stay_out_of_higher_levels(
    engine: Engine, settings: Settings, extracted: Callable[..., Any], scalar: Callable[..., Any]
) -> None:
    """FAILURES 25."""
    extracted()
    level_two = "select count(*) from mneme.summary_nodes where level = 2 and session_id = 's'"
    for _ in range(6):
        scalar("update mneme.compaction_runs set retry_at = now() where state = 'failed'")
        try:
            L2Runner("s", settings=settings, engine=engine).run()
        except Exception:  # noqa: BLE001
            continue
    assert scalar(level_two) >= 1
    assert scalar("select count(*) from mneme.summary_nodes where level > 2") == 0


def test_without_a_fallback_the_batch_is_dismissed(
    engine: Engine, variables: dict[str, str], server: ModelServer, broker: redis.Redis, scalar: Callable[..., Any]
) -> None:
    settings = load_settings(variables | {"MNEME_MNEME__CONTENT_ATTEMPTS": "1", "MNEME_MNEME__FALLBACK": "none"})
    write(engine, "s", range(5))
    server.answer = USELESS
    assert L2Runner("s", settings=settings, engine=engine).run().node is None
    assert scalar("select count(*) from mneme.summary_nodes where dismissed_reason = 'content'") == 5
    assert scalar("select count(*) from mneme.summary_nodes where level > 1") == 0
    assert all_runs(engine, "s")[-1].state == "declined"
    assert sound(engine, settings)


def test_a_sound_answer_takes_the_place_of_the_extract(
    engine: Engine, settings: Settings, server: ModelServer, extracted: Callable[..., Any]
) -> None:
    old = extracted()
    server.answer = says.saves("Short.")
    report, outcomes = redo(engine, settings)
    assert (report.redone, report.others, report.stopped, outcomes) == (1, {}, None, ["redone"])
    assert len(server.calls) == 1
    new = next(each for each in active(engine, "s") if each.level == 2)
    assert (new.content, new.degraded, new.parent_node_ids) == ("Short.", False, old.parent_node_ids)
    assert (new.span_start, new.span_end) == (old.span_start, old.span_end)
    retired = node(engine, old.id)
    assert (retired.retired_reason, retired.replaced_by) == ("replaced", new.id)
    assert all(node(engine, parent).superseded_by == new.id for parent in new.parent_node_ids)
    assert sound(engine, settings)
    assert redo(engine, settings)[0] == RepairReport(0, {})
    assert len(server.calls) == 1


def test_what_declines_or_fails_leaves_the_extract_and_is_left_alone_for_a_while(
    engine: Engine, settings: Settings, server: ModelServer, extracted: Callable[..., Any], scalar: Callable[..., Any]
) -> None:
    old = extracted()
    for answer, outcome in ((says.declines, "declined"), (USELESS, "failed")):
        server.answer = answer
        assert redo(engine, settings)[1] == [outcome]
        assert redo(engine, settings)[1] == []
        assert node(engine, old.id) == old
        assert all_runs(engine, "s")[-1].retry_at is None
        assert sound(engine, settings)
        scalar("update mneme.compaction_runs set finished_at = now() - interval '3 hours' where repairs is not null")
    # What failed is no state of the level: its own runs go on as if nothing had been.
    assert all_runs(engine, "s")[-1].content_failures == 0
    write(engine, "s", range(5, 10))
    claimed = try_claim(engine, "s")
    assert (claimed.attempt, claimed.content_failures, len(claimed.batch)) == (1, 0, 8)


def test_a_failing_server_ends_the_round(
    engine: Engine, settings: Settings, server: ModelServer, extracted: Callable[..., Any]
) -> None:
    extracted("s1")
    extracted("s2")
    server.answer = says.fails(503)
    report, outcomes = redo(engine, settings)
    assert outcomes == ["failed"]
    assert report.stopped is not None
    assert "503" in report.stopped


def test_a_repair_and_a_fold_never_meet(
    engine: Engine, settings: Settings, extracted: Callable[..., Any], scalar: Callable[..., Any]
) -> None:
    old = extracted()
    write(engine, "s", range(5, 10))
    scalar("update mneme.compaction_runs set retry_at = null")
    with transaction(engine) as connection:
        claimed = claim_repair(connection, old.id, 60, worker="w", server=server_of(settings))
    with transaction(engine) as connection, pytest.raises(NotClaimed, match="busy"):
        claim_repair(connection, old.id, 60, worker="w", server=server_of(settings))
    assert try_claim(engine, "s").outcome == "already_running"
    assert claimed.input_ids == list(old.parent_node_ids)


def test_what_is_paused_or_held_is_left_for_later(
    engine: Engine,
    settings: Settings,
    server: ModelServer,
    extracted: Callable[..., Any],
    scalar: Callable[..., Any],
) -> None:
    extracted("s1")
    scalar("update mneme.sessions set paused_at = now() where id = 's1'")
    assert redo(engine, settings)[0] == RepairReport(0, {"paused": 1})
    extracted("s2")
    scalar(
        "insert into mneme.breakers (base_url, model, failures, held_until, openings)"
        " values (:base_url, :model, 5, now() + interval '1 minute', 1)",
        **server_of(settings).key,
    )
    scalar("update mneme.sessions set paused_at = null")
    report, outcomes = redo(engine, settings)
    assert (outcomes, report.stopped) == (["held"], "the breaker of the model's server is open")
    assert server.calls == []
    assert [run.repairs for run in all_runs(engine, "s1") + all_runs(engine, "s2") if run.repairs] == []
    scalar("update mneme.breakers set held_until = now()")
    server.answer = says.saves("Short.")
    assert redo(engine, settings)[0].redone == 2
    assert scalar("select count(*) from mneme.breakers") == 0


def test_a_round_has_an_end(
    engine: Engine, settings: Settings, server: ModelServer, extracted: Callable[..., Any], monkeypatch: Any
) -> None:
    """A worker that is asked to stop waits for its task."""
    extracted("s1")
    extracted("s2")
    monkeypatch.setattr("tasks.repair._ROUND_SECONDS", 0.2)
    server.answer = says.saves("Short.", after_seconds=0.3)
    assert repair(settings, engine) == RepairReport(1, {}, "time is up")


def test_beat_and_a_worker_redo_it_by_themselves(
    engine: Engine,
    variables: dict[str, str],
    server: ModelServer,
    extracted: Callable[..., Any],
    scalar: Callable[..., Any],
    tmp_path: Path,
) -> None:
    old = extracted()
    server.answer = says.saves("Short.")
    environ = variables | {"MNEME_SCHEDULES__REPAIR_SECONDS": "1", "MNEME_SCHEDULES__SWEEP_SECONDS": "60"}
    with (
        celery_worker(environ, tmp_path / "worker.log") as worker,
        process(celery("beat", "-l", "info"), environ, tmp_path / "beat.log"),
    ):
        wait_until(lambda: node(engine, old.id).replaced_by, 30, "the repair")
        worker.wait_for_log('"event": "repair"')
        assert "Short." not in worker.log
    assert len(server.calls) == 1


def test_a_day_costs_no_more_than_is_allowed(
    engine: Engine, variables: dict[str, str], server: ModelServer, extracted: Callable[..., Any]
) -> None:
    extracted("s1")
    extracted("s2")
    server.answer = says.saves("Short.")
    settings = load_settings(variables | {"MNEME_SCHEDULES__REPAIR_TOKENS_PER_DAY": "1"})
    report = repair(settings, engine)
    assert report.redone == 1
    assert report.stopped == "740 tokens in 24 hours, of 1 allowed"
    assert len(server.calls) == 1


def test_the_extract_as_the_model_redoes_nothing(
    engine: Engine, variables: dict[str, str], extracted: Callable[..., Any]
) -> None:
    extracted()
    settings = load_settings(variables | {"MNEME_LLM__MODEL": "extract"})
    assert repair(settings, engine).redone == 0
    with pytest.raises(SettingsError, match="extract"):
        redo_all(settings, engine)


def test_the_command(
    variables: dict[str, str], server: ModelServer, extracted: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    old = extracted()
    shown = run(mneme("status"), variables)
    assert f"node {old.id} of session s" in shown.stdout
    assert "mneme repair" in shown.stdout
    server.answer = says.saves("Short.")
    missing = run(mneme("repair", "nobody"), variables)
    assert (missing.returncode, missing.stderr) == (1, "mneme: there is no session 'nobody'\n")
    done = run(mneme("repair", "s"), variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"node {old.id} of session s: redone", "1 extracts redone"]
    assert "extract" not in run(mneme("status"), variables).stdout
