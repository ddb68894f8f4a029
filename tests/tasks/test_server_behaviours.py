"""What servers do, what is done then, and what it costs: each row of the table of docs/models.md, on a real HTTP endpoint.

Five snapshots are due. The server behaves so at every request, unless the row says *once*.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from models import FoldFailed, load_settings
from models.settings import Settings
from tasks import L2Runner, openai_client
from tasks.ladder import Memory
from tests.support import model_server as says
from tests.support.model_server import Answer, ModelServer, calls_tools, first, model_server, refuses, says_text
from tests.support.processes import ROOT
from tests.support.snapshots import active, all_runs, node, write

SENTENCE = "The team met again and talked about the same plan as before. "


@dataclass(frozen=True)
class Row:
    answer: Answer
    done: str
    calls: int = 1
    requests: int = 1
    error: str = ""


def transient(answer: Answer, error: str) -> Row:
    return Row(answer, "failed: transient", error=error)


def configuration(answer: Answer, error: str, calls: int = 1, requests: int = 1) -> Row:
    return Row(answer, "failed: configuration", calls, requests, error)


def content(answer: Answer, error: str, calls: int = 3) -> Row:
    """Asked, told what was wrong, asked aggressively."""
    return Row(answer, "failed: content", calls, calls, error)


def folded(answer: Answer, calls: int = 1, requests: int = 1) -> Row:
    return Row(answer, "folded", calls, requests)


def _usage_missing(call: says.Call) -> None:
    body = json.loads(says.completion([("save_snapshot", '{"text": "Short."}')]))
    del body["usage"]
    call.send(200, json.dumps(body))


def _arguments_as_object(call: says.Call) -> None:
    body = json.loads(says.completion([("save_snapshot", "{}")]))
    body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = {"text": "Short."}
    call.send(200, json.dumps(body))


def _null_where_a_list_is_due(call: says.Call) -> None:
    body = json.loads(says.completion([]))
    body["choices"][0]["message"]["tool_calls"] = None
    call.send(200, json.dumps(body))


def _limit(call: says.Call) -> int:
    return call.body.get("max_completion_tokens") or call.body["max_tokens"]


def _thinks_first(call: says.Call) -> None:
    """Spend a small limit on reasoning, and answer within a large one."""
    (says.saves("Short.") if _limit(call) > 2048 else says_text("", "length"))(call)


def _too_long_above(snapshots: int, answer: Answer) -> Answer:
    def behave(call: says.Call) -> None:
        (answer if call.user.count("<snapshot-") > snapshots else says.saves("Short."))(call)

    return behave


def saves_text(text: str) -> Answer:
    return says.saves(text)


TABLE: dict[str, Row] = {
    # ------------------------------------------------------------------------------ sound
    "a sound answer": folded(says.saves("Short.")),
    "declines": Row(says.declines, "declined"),
    "usage missing": folded(_usage_missing),
    "arguments as an object, not as JSON text": folded(_arguments_as_object),
    "unicode escapes": folded(calls_tools(("save_snapshot", '{"text": "Gr\\u00f6\\u00dfe \\ud83d\\ude00 \\u65e5"}'))),
    "NUL and a lone surrogate in the text": folded(calls_tools(("save_snapshot", '{"text": "Sh\\u0000or\\ud800t."}'))),
    # ------------------------------------------------------------------------------ parameters
    "does not know max_completion_tokens": folded(refuses("max_completion_tokens"), requests=2),
    "does not know it, and does not say so (param null)": folded(refuses("max_completion_tokens", named=False), requests=2),
    "does not know it, 422 as FastAPI says it": folded(says.refuses_as_fastapi("max_completion_tokens"), requests=2),
    "does not know parallel_tool_calls": folded(refuses("parallel_tool_calls"), requests=2),
    "does not know it (param null)": folded(refuses("parallel_tool_calls", named=False), requests=3),
    "does not know tool_choice required": folded(
        refuses("tool_choice", values={"tool_choice": "required"}), requests=2
    ),
    "knows none of them (param null)": folded(
        refuses("max_completion_tokens", "parallel_tool_calls", "tool_choice", named=False, values={"tool_choice": "required"}),
        requests=4,
    ),
    "modern in its limit, and knows neither of the others (param null)": folded(
        refuses("max_tokens", "parallel_tool_calls", "tool_choice", named=False, values={"tool_choice": "required"}),
        requests=5,
    ),
    "400 whatever is asked": configuration(says.fails(400), "answered 400, and so to every simpler request", 2, 10),
    "422 whatever is asked": configuration(says.fails(422), "answered 422", 2, 10),
    "400 for more than two snapshots, without a reason": Row(
        _too_long_above(2, says.fails(400)), "folded, half of the batch", 2, 6
    ),
    # ------------------------------------------------------------------------------ length
    "413 for more than two snapshots": Row(_too_long_above(2, says.fails(413)), "folded, half of the batch", 2, 2),
    "400 context_length_exceeded for more than two": Row(
        _too_long_above(2, says.fails(400, "context_length_exceeded")), "folded, half of the batch", 2, 2
    ),
    "413 whatever is asked": Row(says.fails(413), "failed: too_long", 2, 2, "too long: set llm.context_window"),
    # ------------------------------------------------------------------------------ status
    "401": configuration(says.fails(401, "invalid_api_key"), "401 .invalid_api_key.: check OPENAI_API_KEY"),
    "402": configuration(says.fails(402), "no money left"),
    "403": configuration(says.fails(403), "may not use this model"),
    "404": configuration(says.fails(404, "model_not_found"), "check llm.model"),
    "405": configuration(says.fails(405), "answered 405"),
    "400 content_filter": content(says.fails(400, "content_filter"), "content filter", 1),
    "408": transient(says.fails(408), "answered 408"),
    "409": transient(says.fails(409), "answered 409"),
    "425": transient(says.fails(425), "answered 425"),
    "429": transient(says.fails(429), "answered 429"),
    "500": transient(says.fails(500), "answered 500"),
    "502": transient(says.fails(502), "answered 502"),
    "503": transient(says.fails(503), "answered 503"),
    "529": transient(says.fails(529), "answered 529"),
    "500 that mentions 401 and an invalid key in its text": transient(
        lambda c: c.send(500, json.dumps({"error": {"message": "401 invalid_api_key", "code": None}})), "answered 500"
    ),
    "redirects": configuration(
        lambda c: c.send(307, "", location="http://127.0.0.1:1/elsewhere"), "where the server redirects"
    ),
    # ------------------------------------------------------------------------------ connection
    "drops the connection": transient(says.drops, "no connection"),
    "slow": transient(says.saves("Short.", after_seconds=4), "did not answer within 2 s"),
    "one byte a second": transient(says.drips, "did not answer within 2 s"),
    "a gigabyte of white space": transient(says.floods, "no connection to the model's server .ReadError"),
    "a gigabyte of it with 500": transient(says.floods_with_an_error, "no connection|answered 500"),
    # ------------------------------------------------------------------------------ 200 that is no completion
    "HTML with 200": transient(says.replies("<html>hi</html>", "text/html"), "no chat completion"),
    "empty choices": transient(says.replies('{"choices": []}'), "no chat completion"),
    "null choices": transient(says.replies('{"choices": null}'), "no chat completion"),
    "a JSON string": transient(says.replies('"hello"'), "no chat completion"),
    "broken JSON": transient(says.replies('{"choices": [{"mess'), "no chat completion"),
    "deeply nested": transient(says.replies("[" * 100_000), "no chat completion"),
    "an empty body": transient(says.replies(""), "no chat completion"),
    "an error with 200": transient(says.replies('{"error": {"message": "overloaded"}}'), "no chat completion"),
    # ------------------------------------------------------------------------------ answers without one valid tool call
    "null content and no tool call": content(_null_where_a_list_is_due, "got nothing"),
    "prose instead of a tool call": content(says_text("Sure! Here is the summary."), "got prose"),
    "prose, once": folded(first(says_text("Sure!")), 2, 2),
    "the tool call as text": content(
        says_text('<tool_call>{"name": "save_snapshot", "arguments": {"text": "x"}}</tool_call>'), "one written as text"
    ),
    "two saves": content(calls_tools(*[("save_snapshot", '{"text": "a"}')] * 2), "got 2"),
    "a save and everything_ok": content(calls_tools(("save_snapshot", '{"text": "a"}'), ("everything_ok", "{}")), "got 2"),
    "two saves, once": folded(first(calls_tools(*[("save_snapshot", '{"text": "a"}')] * 2)), 2, 2),
    "an unknown tool": content(calls_tools(("rm_rf", "{}")), "does not exist"),
    "arguments that are not JSON": content(calls_tools(("save_snapshot", "text: hi")), "not JSON"),
    "arguments without a text": content(calls_tools(("save_snapshot", "{}")), "not JSON"),
    "a list as the text": content(calls_tools(("save_snapshot", '{"text": []}')), "no string"),
    "a refusal in its own field": content(says_text(None, refusal="I cannot."), "got a refusal"),
    # ------------------------------------------------------------------------------ texts that must not be stored
    "blank text": content(saves_text(" \n\u200b\t "), "blank"),
    "blank text, twice": Row(first(saves_text("  "), times=2), "folded, aggressive prompt", 3, 3),
    "cut off": content(
        calls_tools(("save_snapshot", '{"text": "a"}'), finish_reason="length"), "cut off"
    ),
    "a model that thinks until the limit is used up": folded(_thinks_first, 2, 2),
    "stopped by a content filter": content(
        calls_tools(("save_snapshot", '{"text": "a"}'), finish_reason="content_filter"), "content filter"
    ),
    "reasoning inside the summary": content(saves_text("<think>Hm, what now?</think> They met."), "reasoning"),
    "a refusal as the summary": content(saves_text("I'm sorry, but I can't help with that."), "refusal"),
    "asks for the conversation": content(saves_text("Please provide the conversation to summarise."), "refusal"),
    "the same sentence sixty times": content(saves_text(SENTENCE * 10), "over and over"),
    "not smaller than its input": content(saves_text(" ".join(f"word{n}" for n in range(900))), "not smaller|max_tokens"),
    "longer than max_tokens": content(saves_text(" ".join(f"word{n}" for n in range(3000))), "max_tokens"),
    "more than 32,768 bytes": content(saves_text(" ".join(f"word{n}" for n in range(9000))), "bytes"),
    "names and numbers that stand nowhere, once": folded(
        first(saves_text(" ".join(f"#{n}" for n in range(500, 520)))), 2, 2
    ),
    "names and numbers that stand nowhere": Row(
        saves_text(" ".join(f"#{n}" for n in range(500, 520))), "folded", 2, 2
    ),
    "a secret in the summary": folded(saves_text("The key is sk-" + "a1B2" * 8 + ".")),
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
def settings(environ: dict[str, str], server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(openai_client, "_memory", Memory())
    return load_settings(
        environ | {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url, "MNEME_LLM__TIMEOUT_SECONDS": "2"}
    )


@pytest.fixture
def runner(settings: Settings, engine: Engine, broker: redis.Redis) -> Callable[..., L2Runner]:
    return lambda session_id="s": L2Runner(session_id, settings=settings, engine=engine)


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_what_servers_do(
    row: Row, engine: Engine, runner: Callable[..., L2Runner], server: ModelServer, scalar: Callable[..., Any],
    broker: redis.Redis, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    before = write(engine, "s", range(5))
    server.answer = row.answer
    if row.done.startswith("failed"):
        error = _fails(row, engine, runner, before)
    else:
        report, error = runner().run(), ""
        assert report.llm_calls == row.calls
        _holds(row, engine, report)
    assert len(server.calls) == row.requests
    # The servers of these tests quote the prompt in their errors.
    for told in (error, caplog.text):
        assert "decision1" not in told
    if not row.done.startswith("failed"):
        return
    # Held by its retry_at: nobody is called in the meantime, and nothing published. It costs nothing but time.
    assert runner().run().outcome == "backing_off"
    assert (len(server.calls), broker.llen("mneme")) == (row.requests, 0)
    server.answer = says.saves("Short.")
    scalar("update mneme.compaction_runs set retry_at = now()")
    scalar("update mneme.breakers set held_until = now() where held_until is not null")
    assert runner().run().outcome == "folded"
    assert all_runs(engine, "s")[-1].attempt == 2
    assert scalar("select count(*) from mneme.breakers") == 0


def _fails(row: Row, engine: Engine, runner: Callable[..., L2Runner], before: list[Any]) -> str:
    kind = row.done.removeprefix("failed: ")
    with pytest.raises(FoldFailed, match=row.error) as caught:
        runner().run()
    (run,) = all_runs(engine, "s")
    assert (run.state, run.error_kind, run.node_id, run.llm_calls) == ("failed", kind, None, row.calls)
    assert re.search(row.error, run.error)
    assert run.content_failures == (1 if kind == "content" else 0)
    assert run.retry_at - run.finished_at > timedelta(seconds=29)
    assert active(engine, "s") == before
    return str(caught.value) + run.error


def _holds(row: Row, engine: Engine, report: Any) -> None:
    if row.done == "declined":
        assert report.outcome == "declined"
        return
    made = node(engine, report.node)
    assert len(made.parent_node_ids) == (2 if "half" in row.done else 5)
    assert made.compaction_level == (2 if "aggressive" in row.done else 1)
    assert not made.degraded
    assert "\0" not in made.content
    assert "sk-" not in made.content


def test_the_table_of_the_documentation_is_this_one() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| .* \| .* \| \d+ \| \d+ \|$", line)]
    assert rows == [f"| {name} | {row.done} | {row.calls} | {row.requests} |" for name, row in TABLE.items()]
    assert len(rows) >= 30


# ------------------------------------------------------------------------------------------------ what is learned


def test_what_a_server_accepts_is_learned_once(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    server.answer = refuses("max_completion_tokens", "parallel_tool_calls", named=False)
    for number, requests in enumerate((3, 4, 5)):
        write(engine, f"s{number}", range(5))
        assert runner(f"s{number}").run().llm_calls == 1
        assert len(server.calls) == requests
    assert [name in server.calls[-1].body for name in ("max_tokens", "parallel_tool_calls", "tool_choice")] == [
        True, False, True,
    ]  # fmt: skip


def test_what_was_learned_is_forgotten_when_the_server_refuses_it(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    write(engine, "s", range(5))
    server.answer = refuses("max_completion_tokens")
    runner().run()
    server.answer = refuses("max_tokens")  # it was upgraded to a model that wants the other name
    write(engine, "t", range(5))
    assert (
        runner("t").run().outcome == "folded"
    )  # the second try, with half of the batch, begins at the top of the ladder
    write(engine, "u", range(5))
    assert len(node(engine, runner("u").run().node).parent_node_ids) == 5


def test_the_larger_limit_is_learned_too(engine: Engine, runner: Callable[..., L2Runner], server: ModelServer) -> None:
    server.answer = _thinks_first
    for number, calls in enumerate((2, 1, 1)):
        write(engine, f"s{number}", range(5))
        assert runner(f"s{number}").run().llm_calls == calls
    assert [_limit(call) for call in server.calls] == [2048, 8192, 8192, 8192]


def test_what_was_wrong_is_told_in_the_same_conversation(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    write(engine, "s", range(5))
    server.answer = first(calls_tools(("save_snapshot", '{"text": " "}')))
    runner().run()
    opening, said, result = server.calls[1].body["messages"][1:]
    assert opening == server.calls[0].body["messages"][1]
    assert (said["role"], said["tool_calls"][0]["function"]["name"]) == ("assistant", "save_snapshot")
    assert (result["role"], result["tool_call_id"]) == ("tool", said["tool_calls"][0]["id"])
    assert "the summary is blank" in result["content"]

    write(engine, "t", range(5))
    server.calls.clear()
    server.answer = first(says_text("Sure!"))
    runner("t").run()
    assert [message["role"] for message in server.calls[1].body["messages"]] == ["system", "user", "assistant", "user"]
    assert "got prose" in server.calls[1].user


def test_a_server_that_wants_no_correction_is_asked_aggressively(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    """A template that knows no role of tools answers 400 to the conversation, though not to its opening."""
    write(engine, "s", range(5))

    def answer(call: says.Call) -> None:
        if any(message["role"] == "tool" for message in call.body["messages"]):
            return says.fails(400)(call)
        return (saves_text(" ") if call.number == 1 else says.saves("Short."))(call)

    server.answer = answer
    report = runner().run()
    assert (report.llm_calls, node(engine, report.node).compaction_level) == (3, 2)
    assert "terse bullet points" in server.calls[-1].user


def test_of_four_calls_none_is_left_for_more(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    """Too long, then three answers about half of it."""
    write(engine, "s", range(10))
    server.answer = _too_long_above(5, says.fails(413))
    blank = saves_text(" ")
    server.answer = lambda call: (says.fails(413) if call.number == 1 else blank)(call)
    with pytest.raises(FoldFailed, match="blank"):
        runner().run()
    assert (len(server.calls), all_runs(engine, "s")[0].llm_calls) == (4, 4)


def test_a_usage_that_is_not_told_is_estimated(
    engine: Engine, runner: Callable[..., L2Runner], server: ModelServer
) -> None:
    """Else the caps on spending would take it for free."""
    write(engine, "s", range(5))
    server.answer = _usage_missing
    report = runner().run()
    assert 1000 < report.prompt_tokens < 4000
    assert 2 <= report.completion_tokens < 20


def test_no_call_is_begun_that_could_not_end_in_time(
    environ: dict[str, str], engine: Engine, server: ModelServer, broker: redis.Redis
) -> None:
    """A run of six seconds: after an answer of five and a half that cannot be used, none is left for another."""
    settings = load_settings(
        environ
        | {
            "MNEME_LLM__MODEL": "m",
            "OPENAI_BASE_URL": server.url,
            "MNEME_MNEME__LEASE_SECONDS": "8",
            "MNEME_LLM__TIMEOUT_SECONDS": "6",
        }
    )
    server.answer = says.saves(" ", after_seconds=5.5)
    write(engine, "s", range(5))
    with pytest.raises(FoldFailed, match="blank"):
        L2Runner("s", settings=settings, engine=engine).run()
    (run,) = all_runs(engine, "s")
    assert (run.state, run.error_kind, run.llm_calls, len(server.calls)) == ("failed", "content", 1, 1)
    assert run.finished_at < run.lease_expires_at


def test_headers_and_fields_that_a_gateway_wants(
    environ: dict[str, str], engine: Engine, server: ModelServer, broker: redis.Redis
) -> None:
    settings = load_settings(
        environ
        | {
            "MNEME_LLM__MODEL": "m",
            "OPENAI_BASE_URL": server.url,
            "MNEME_LLM__HEADERS": '{"x-api-key": "s3cret", "Authorization": "Basic eA=="}',
            "MNEME_LLM__EXTRA_BODY": '{"chat_template_kwargs": {"enable_thinking": false}, "temperature": 0}',
        }
    )
    write(engine, "s", range(5))
    L2Runner("s", settings=settings, engine=engine).run()
    (call,) = server.calls
    assert (call.headers["x-api-key"], call.headers["authorization"]) == ("s3cret", "Basic eA==")
    assert call.body["chat_template_kwargs"] == {"enable_thinking": False}
    assert call.body["temperature"] == 0
