"""The life of a job, in this process, on real Postgres, Redis and a real HTTP endpoint for the model."""

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text

from models import (
    ConfigurationFailure,
    InvalidNode,
    TransientFailure,
    load_settings,
    transaction,
)
from models.settings import Settings
from tasks import L2Runner, ModelAnswer, ToolCall
from tests.support import model_server as says
from tests.support.model_server import Call, ModelServer, model_server
from tests.support.snapshots import DAY_ONE, active, all_runs, content, node, write


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
def model_settings(environ: dict[str, str], server: ModelServer) -> Settings:
    return load_settings(environ | {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url})


@pytest.fixture
def runner(model_settings: Settings, engine: Engine, broker: redis.Redis) -> Callable[..., L2Runner]:
    return lambda session_id="s", client=None: L2Runner(session_id, client, settings=model_settings, engine=engine)


# ------------------------------------------------------------------------------------------------ the threshold


def test_four_snapshots_ask_nobody_and_the_fifth_makes_one_node(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, scalar: Callable[..., Any]
) -> None:
    for number in range(4):
        write(engine, "s", [number])
        report = runner().run()
        assert (report.outcome, report.level, report.uncovered, report.threshold) == (
            "below_threshold",
            2,
            number + 1,
            5,
        )
    assert server.calls == []
    assert len(active(engine, "s")) == 4
    fifth = write(engine, "s", [4])[0]

    server.answer = says.saves("What five snapshots came to.")
    report = runner().run()

    assert len(server.calls) == 1
    assert report.as_result() == {
        "outcome": "folded", "session_id": "s", "level": 2, "uncovered": 5, "threshold": 5, "node": report.node,
        "llm_calls": 1, "prompt_tokens": 700, "completion_tokens": 40,
    }  # fmt: skip
    parents = [node(engine, parent) for parent in node(engine, report.node).parent_node_ids]
    assert [p.span_start for p in parents] == [1, 11, 21, 31, 41]
    assert all(str(p.superseded_by) == report.node and p.superseded for p in parents)
    (folded,) = active(engine, "s")
    assert (str(folded.id), folded.level, folded.kind) == (report.node, 2, "condensed")
    assert (folded.span_start, folded.span_end) == (1, 50)
    assert (folded.started_at, folded.ended_at) == (DAY_ONE, fifth.ended_at)
    assert folded.content == "What five snapshots came to."
    assert (folded.model, folded.prompt_version, folded.compaction_level, folded.degraded) == ("m", "l2-2", 1, False)
    with engine.connect() as connection:
        view = connection.execute(text("select id::text, content from mneme.active_summary_nodes")).all()
        assert [tuple(row) for row in view] == [(report.node, "What five snapshots came to.")]
        message = connection.execute(text("select * from mneme.messages where id = :i"), {"i": report.node}).one()
        parts = connection.execute(
            text("select part_type, content from mneme.message_parts where message_id = :i order by part_index"),
            {"i": report.node},
        ).all()
    assert (message.session_id, message.seq, message.is_summary, message.model) == ("s", None, True, "m")
    assert [part.part_type for part in parts] == ["text", "compaction"]
    assert json.loads(parts[1].content) == {
        "summary_node_id": report.node,
        "level": 2,
        "compacted_message_count": 50,
        "compacted_token_count": sum(p.token_count or 0 for p in parents),
    }
    (run,) = all_runs(engine, "s")
    assert (run.state, str(run.node_id), run.llm_calls, run.prompt_tokens, run.completion_tokens) == (
        "succeeded", report.node, 1, 700, 40,
    )  # fmt: skip
    assert str(folded.run_id) == str(run.id)


def test_call_returns_the_summary_or_none(engine: Engine, runner: Callable[..., L2Runner], server: ModelServer) -> None:
    assert runner().call() is None
    write(engine, "s", range(5))
    server.answer = says.saves("Short.")
    assert runner().call() == "Short."
    write(engine, "s", range(5, 10))
    server.answer = says.declines
    assert runner().call() is None


def test_an_unknown_session_is_below_threshold(runner: Callable[..., L2Runner]) -> None:
    report = runner("never seen").run()
    assert (report.outcome, report.uncovered) == ("below_threshold", 0)


@pytest.mark.parametrize("bad", ["", "x" * 256, "a\0b", "\ud800", 7, None, {"a": 1}])
def test_what_cannot_be_a_session_id_is_refused_in_one_sentence(runner: Callable[..., L2Runner], bad: object) -> None:
    with pytest.raises(InvalidNode, match="session id"):
        runner(bad)


# ------------------------------------------------------------------------------------------------ the prompt


def test_the_prompt_holds_each_snapshot_once_and_nothing_of_other_sessions(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    write(engine, "s", range(5))
    write(engine, "other", range(5), content="a secret of another session")
    runner().run()
    (call,) = server.calls
    assert "another session" not in call.prompt
    for number in range(5):
        assert call.user.count(content("s", number)) == 1
    assert [m["role"] for m in call.body["messages"]] == ["system", "user"]
    assert call.body["messages"][0]["content"] == L2Runner.SYSTEM_PROMPT
    assert [tool["function"]["name"] for tool in call.body["tools"]] == ["save_snapshot", "everything_ok"]
    assert call.body["model"] == "m"
    heads = re.findall(r'number="(\d)" messages="(\d+) to (\d+)" from="([^"]+)" to="([^"]+)"', call.user)
    assert heads[1] == ("2", "11", "20", "2026-03-02 09:00 UTC", "2026-03-02 10:00 UTC")
    assert [head[0] for head in heads] == ["1", "2", "3", "4", "5"]


def test_a_late_snapshot_goes_into_the_next_fold(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    write(engine, "s", [0, 1, 3, 4, 5])
    assert runner().run().outcome == "folded"
    late = write(engine, "s", [2])[0]
    assert runner().run().uncovered == 1
    write(engine, "s", [6, 7, 8, 9])
    report = runner().run()
    assert node(engine, report.node).parent_node_ids[0] == late.id
    assert content("s", 2) in server.calls[1].user
    assert content("s", 3) not in server.calls[1].user


def test_three_hundred_become_several_folds_oldest_first(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, broker: redis.Redis
) -> None:
    write(engine, "s", range(300), content="A few words that matter.")
    folds = 0
    while (report := runner().run()).outcome == "folded":
        folded = node(engine, report.node)
        assert len(folded.parent_node_ids) == 20
        assert (folded.span_start, folded.span_end) == (folds * 200 + 1, folds * 200 + 200)
        folds += 1
        # One delivery, one fold; while more is due the session is published again.
        assert broker.llen("mneme") == (folds if folds < 15 else 14)
    assert (folds, report.outcome, len(server.calls)) == (15, "below_threshold", 15)
    assert len(active(engine, "s")) == 15


# ------------------------------------------------------------------------------------------------ declined


def test_everything_ok_dismisses_the_five_and_they_ride_along_with_the_next(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    write(engine, "s", range(5))
    server.answer = says.declines
    report = runner().run()
    assert (report.outcome, report.node, report.llm_calls) == ("declined", None, 1)
    left = active(engine, "s")
    assert [(n.dismissed_reason, n.superseded, bool(n.content)) for n in left] == [("declined", False, True)] * 5
    write(engine, "s", range(5, 9))
    assert runner().run().outcome == "below_threshold"
    assert len(server.calls) == 1
    write(engine, "s", [9])
    server.answer = says.saves("Short.")
    assert runner().run().outcome == "folded"
    for number in range(10):
        assert content("s", number) in server.calls[1].user
    (folded,) = active(engine, "s")
    assert len(folded.parent_node_ids) == 10
    assert [run.state for run in all_runs(engine, "s")] == ["declined", "succeeded"]


# ------------------------------------------------------------------------------------------------ failures


def usage(told: object) -> Callable[[Call], None]:
    def answer(call: Call) -> None:
        body = json.loads(says.completion([("save_snapshot", '{"text": "Short."}')]))
        call.send(200, json.dumps(body | {"usage": told}))

    return answer


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"prompt_tokens": 7}, (7, 0)),
        ({"prompt_tokens": 7, "completion_tokens": -5}, (7, 0)),
        # Where nothing is told that can be true, the caps on spending have our estimate.
        ({"prompt_tokens": 10**30, "completion_tokens": -5}, None),
        ({"prompt_tokens": "7", "completion_tokens": 1.5}, None),
        ([1, 2], None),
        (None, None),
    ],
)
def test_a_good_answer_is_kept_whatever_the_server_says_it_cost(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, told: object, kept: tuple[int, int] | None
) -> None:
    write(engine, "s", range(5))
    server.answer = usage(told)
    assert runner().run().outcome == "folded"
    (run,) = all_runs(engine, "s")
    if kept is None:
        assert 500 < run.prompt_tokens < 5000
        assert 1 < run.completion_tokens < 50
    else:
        assert (run.prompt_tokens, run.completion_tokens) == kept


def test_inputs_that_stay_locked_cost_the_answer_and_not_the_snapshots(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks import patience

    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.5)
    write(engine, "s", range(5))
    with engine.connect() as other:

        def lock(call: Call) -> None:
            other.execute(text("select from mneme.summary_nodes where span_start = 1 for update"))
            says.saves("Short.")(call)

        server.answer = lock
        with pytest.raises(TransientFailure, match="could not be committed"):
            runner().run()
    (run,) = all_runs(engine, "s")
    assert (run.state, run.error_kind, run.crashes) == ("failed", "transient", 0)


def test_a_commit_that_the_server_ended_for_idling_is_made_again(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from models import runs

    write(engine, "s", range(5))
    real = runs.count_again
    stopped: list[int] = []

    def stop_once(connection: Any, *rest: Any) -> Any:
        if not stopped:
            stopped.append(1)
            connection.execute(text("set local idle_in_transaction_session_timeout = '100ms'"))
            time.sleep(0.5)
        return real(connection, *rest)

    monkeypatch.setattr(runs, "count_again", stop_once)
    assert runner().run().outcome == "folded"
    assert len(server.calls) == 1


def test_retry_after_is_obeyed_up_to_an_hour(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    for session_id, header, seconds in (
        ("a", "120", 120),
        ("b", "99999", 3600),
        ("c", "Wed, 21 Oct 2015 07:28:00 GMT", None),
    ):
        write(engine, session_id, range(5))
        server.answer = says.fails(429, retry_after=header)
        with pytest.raises(TransientFailure):
            runner(session_id).run()
        (run,) = all_runs(engine, session_id)
        wait = (run.retry_at - run.finished_at).total_seconds()
        assert 30 <= wait <= 60 if seconds is None else abs(wait - seconds) < 1


@pytest.mark.parametrize(
    "header", ["0", "nan", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Mon, 01 Jan 2027 00:00:00 +99999999999999"]
)
def test_a_retry_after_that_says_nothing_is_not_obeyed(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, header: str
) -> None:
    write(engine, "s", range(5))
    server.answer = says.fails(429, retry_after=header)
    with pytest.raises(TransientFailure, match="answered 429"):
        runner().run()
    (run,) = all_runs(engine, "s")
    assert 30 <= (run.retry_at - run.finished_at).total_seconds() <= 60


def test_a_wrong_key_waits_long(engine: Engine, runner: Callable[..., L2Runner], server: ModelServer) -> None:
    write(engine, "s", range(5))
    server.answer = says.fails(401)
    with pytest.raises(ConfigurationFailure):
        runner().run()
    (run,) = all_runs(engine, "s")
    assert (run.retry_at - run.finished_at).total_seconds() >= 1800


@pytest.mark.parametrize("answer", [says.fails(413), says.fails(400, "context_length_exceeded")], ids=["413", "400"])
def test_too_long_for_the_server_halves_the_batch_once(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, scalar: Callable[..., Any], answer: Any
) -> None:
    write(engine, "s", range(10))
    server.answer = lambda call: answer(call) if call.number == 1 else says.saves("Short.")(call)
    report = runner().run()
    assert (report.outcome, report.llm_calls) == ("folded", 2)
    assert len(node(engine, report.node).parent_node_ids) == 5
    (run,) = all_runs(engine, "s")
    assert run.input_ids == list(node(engine, report.node).parent_node_ids)
    write(engine, "t", range(20))
    server.answer = answer
    with pytest.raises(ConfigurationFailure, match="too long: set llm"):
        runner("t").run()
    (run,) = all_runs(engine, "t")
    assert (run.llm_calls, len(run.input_ids), run.error_kind) == (2, 10, "too_long")
    # The next run begins with less than what was too long, and waits no longer than after any failure.
    assert run.retry_at - run.finished_at <= timedelta(seconds=60)
    scalar("update mneme.compaction_runs set retry_at = now()")
    server.answer = says.saves("Short.")
    assert len(node(engine, runner("t").run().node).parent_node_ids) == 5


def test_one_that_is_too_long_alone_waits_for_other_settings(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, scalar: Callable[..., Any]
) -> None:
    """Dismissing it would consume a whole memory, should the address be wrong."""
    write(engine, "t", range(5))
    server.answer = says.fails(413)
    for nodes in (2, 1):
        with pytest.raises(ConfigurationFailure, match="too long"):
            runner("t").run()
        assert len(all_runs(engine, "t")[-1].input_ids) == nodes
        scalar("update mneme.compaction_runs set retry_at = now()")
    assert all_runs(engine, "t")[-1].error_kind == "configuration"
    assert len(active(engine, "t")) == 5


def test_a_server_that_drips_is_cut_off_at_the_total_deadline(
    environ: dict[str, str], engine: Engine, server: ModelServer
) -> None:
    settings = load_settings(
        environ
        | {
            "MNEME_LLM__MODEL": "m",
            "OPENAI_BASE_URL": server.url,
            "MNEME_LLM__TIMEOUT_SECONDS": "2",
            "MNEME_MNEME__LEASE_SECONDS": "4",
        }
    )
    write(engine, "s", range(5))
    server.answer = says.drips
    with pytest.raises(TransientFailure, match="did not answer within 2 s"):
        L2Runner("s", settings=settings, engine=engine).run()
    (run,) = all_runs(engine, "s")
    assert 1.9 < (run.finished_at - run.started_at).total_seconds() < 3.5


def test_during_the_call_no_transaction_is_open_and_no_connection_is_held(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    """FAILURES 40."""
    write(engine, "s", range(5))
    seen: list[Any] = []

    def look(call: Call) -> None:
        seen.append(engine.pool.checkedout())  # type: ignore[attr-defined]
        with engine.connect() as connection:
            statement = text(
                "select state from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
                " and (xact_start is not null or state <> 'idle')"
            )
            seen.append(connection.execute(statement).all())
        says.saves("Short.")(call)

    server.answer = look
    assert runner().run().outcome == "folded"
    assert seen == [0, []]


# ------------------------------------------------------------------------------------------------ losing and racing


def test_a_run_that_was_taken_over_during_the_call_writes_nothing(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))

    def taken_over(call: Call) -> None:
        if call.number == 1:
            scalar("update mneme.compaction_runs set lease_expires_at = now() - interval '1 s'")
            assert runner().run().outcome == "folded"
        says.saves(f"By call {call.number}.")(call)

    server.answer = taken_over
    report = runner().run()
    assert (report.outcome, report.node, report.summary) == ("lost_lease", None, None)
    assert [n.content for n in active(engine, "s")] == ["By call 2."]
    assert [run.state for run in all_runs(engine, "s")] == ["expired", "succeeded"]


def test_an_input_that_disappears_releases_the_run_and_the_rest_is_published(
    engine: Engine,
    runner: Callable[..., L2Runner],
    server: ModelServer,
    scalar: Callable[..., Any],
    broker: redis.Redis,
) -> None:
    write(engine, "s", range(6))

    def disappears(call: Call) -> None:
        scalar(
            "update mneme.summary_nodes set dismissed_at = now(), dismissed_reason = 'restored' where span_start = 1"
        )
        says.saves("Short.")(call)

    server.answer = disappears
    assert runner().run().outcome == "lost_lease"
    (run,) = all_runs(engine, "s")
    assert (run.state, run.node_id) == ("released", None)
    assert run.retry_at is not None
    assert broker.llen("mneme") == 1
    assert len(active(engine, "s")) == 6


def test_the_lost_wake_up(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, broker: redis.Redis
) -> None:
    """FAILURES 6: five more arrive while a fold runs; their own jobs see the lease and leave."""
    write(engine, "s", range(5))

    def five_more(call: Call) -> None:
        write(engine, "s", range(5, 10))
        assert runner().run().outcome == "already_running"
        says.saves("Short.")(call)

    server.answer = five_more
    assert runner().run().outcome == "folded"
    assert broker.llen("mneme") == 1
    assert all_runs(engine, "s")[0].retry_at is not None


def test_the_connection_lost_at_commit_is_looked_up_and_not_written_twice(
    engine: Engine,
    runner: Callable[..., L2Runner],
    server: ModelServer,
    scalar: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server has committed, the client got an error: the run's row says what happened."""
    from models import runs

    write(engine, "s", range(5))
    real = runs.count_again
    cut: list[int] = []

    def count_and_cut(connection: Any, *rest: Any) -> Any:
        counted = real(connection, *rest)
        if not cut:
            # Commit behind SQLAlchemy's back, then lose the connection before it can say so.
            driver = connection.connection.driver_connection
            driver.commit()
            cut.append(driver.info.backend_pid)
            scalar("select pg_terminate_backend(:pid)", pid=cut[0])
        return counted

    monkeypatch.setattr(runs, "count_again", count_and_cut)
    report = runner().run()
    assert cut
    assert report.outcome == "folded"
    assert len(server.calls) == 1
    assert scalar("select count(*) from mneme.summary_nodes where level = 2") == 1


def test_the_connection_lost_before_commit_is_tried_again(
    engine: Engine,
    runner: Callable[..., L2Runner],
    server: ModelServer,
    scalar: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from models import runs

    write(engine, "s", range(5))
    real = runs.count_again
    cut: list[int] = []

    def cut_once(connection: Any, *rest: Any) -> Any:
        if not cut:
            cut.append(connection.connection.driver_connection.info.backend_pid)
            scalar("select pg_terminate_backend(:pid)", pid=cut[0])
        return real(connection, *rest)

    monkeypatch.setattr(runs, "count_again", cut_once)
    assert runner().run().outcome == "folded"
    assert len(server.calls) == 1
    assert scalar("select count(*) from mneme.summary_nodes where level = 2") == 1


# ------------------------------------------------------------------------------------------------ clients and models


def test_a_client_of_ones_own(environ: dict[str, str], engine: Engine) -> None:
    class Own:
        def chat_with_tools(self, messages: Any, *, tools: Any, system: str, deadline: Any) -> ModelAnswer:
            assert deadline.remaining_seconds() > 200
            assert tools == L2Runner.TOOLS
            assert system == L2Runner.SYSTEM_PROMPT
            return ModelAnswer((ToolCall("save_snapshot", '{"text": "Mine."}'),))

    write(engine, "s", range(5))
    settings = load_settings({k: v for k, v in environ.items() if k != "REDIS_URL"})
    assert L2Runner("s", Own(), settings=settings, engine=engine).call() == "Mine."


def test_a_fault_in_a_client_is_recorded_by_type_and_place_alone(
    runner: Callable[..., L2Runner], engine: Engine
) -> None:
    class Broken:
        def chat_with_tools(self, messages: Any, **_: Any) -> ModelAnswer:
            raise KeyError(messages[0]["content"])

    write(engine, "s", range(5))
    with pytest.raises(TransientFailure, match=r"internal error: KeyError at test_runner\.py:\d+$") as caught:
        runner(client=Broken()).run()
    assert caught.value.__cause__ is None
    assert all_runs(engine, "s")[0].state == "failed"


def test_a_client_that_raises_what_postgres_cannot_hold(runner: Callable[..., L2Runner], engine: Engine) -> None:
    class Strange:
        def chat_with_tools(self, *_: Any, **__: Any) -> ModelAnswer:
            raise TransientFailure("bad\0thing\ud800" + "x" * 5000)

    write(engine, "s", range(5))
    with pytest.raises(TransientFailure):
        runner(client=Strange()).run()
    (run,) = all_runs(engine, "s")
    assert (run.state, run.error[:8]) == ("failed", "badthing")


def test_the_extract_folds_without_any_model_and_says_so(
    settings: Settings, engine: Engine, server: ModelServer
) -> None:
    parents = write(engine, "s", range(5))
    report = L2Runner("s", settings=settings, engine=engine).run()
    assert (report.outcome, report.llm_calls, report.prompt_tokens) == ("folded", 0, 0)
    folded = node(engine, report.node)
    assert (folded.model, folded.prompt_version, folded.compaction_level, folded.degraded) == (
        "extract",
        "extract-1",
        3,
        False,
    )
    assert (folded.token_count or 0) < sum(p.token_count or 0 for p in parents)
    assert server.calls == []


def test_many_runners_at_once_make_one_call(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    write(engine, "s", range(5))
    server.answer = says.saves("Short.", after_seconds=0.5)
    outcomes: list[str] = []
    threads = [threading.Thread(target=lambda: outcomes.append(runner().run().outcome)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(server.calls) == 1
    assert sorted(set(outcomes)) == ["already_running", "folded"]
    assert outcomes.count("folded") == 1


def test_logs_tell_ids_and_never_text(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    write(engine, "s", range(4))
    runner().run()
    write(engine, "s", [4])
    server.answer = says.saves("The summary itself.")
    report = runner().run()
    (run,) = all_runs(engine, "s")
    assert f"run={run.id}" in caplog.text
    assert f"node={report.node}" in caplog.text
    assert "uncovered=4 threshold=5" in caplog.text
    skipped = [record for record in caplog.records if record.getMessage().startswith("skipped")]
    assert [record.levelname for record in skipped] == ["DEBUG"]
    assert "decision" not in caplog.text
    assert "The summary itself" not in caplog.text
    assert "The summary itself" not in repr(report)


def test_storage_errors_carry_no_rows(engine: Engine) -> None:
    from models import StorageError

    with pytest.raises(StorageError) as caught, transaction(engine) as connection:
        connection.execute(
            text("insert into mneme.message_parts (message_id, part_index, part_type, content)"
                 " values (gen_random_uuid(), -1, 'text', :secret)"), {"secret": "hunter2"},
        )  # fmt: skip
    assert "hunter2" not in str(caught.value)
    assert "SQLSTATE 23" in str(caught.value)
    assert caught.value.__cause__ is None
