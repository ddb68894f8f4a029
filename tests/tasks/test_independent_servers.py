"""Servers that others wrote, who had their own idea of chat completions: nothing but the URL and the model is set."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from models import ContentFailure, FoldFailed, TransientFailure, load_settings
from tasks import L2Runner
from tasks.runner import Report
from tests.support.processes import process, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import all_runs, node, write

Fold = Callable[[str, str], Report]
CHAT_PATHS = ["/v1", "/mistral/v1", "/groq/openai/v1", "/together/v1", "/xai/v1"]

RULES = """
version: 1
rules:
  - name: refuses
    when: {model_matches: "broken-*"}
    respond: {status: 500, error: "no"}
  - name: talks
    when: {model_matches: "talker"}
    respond: {content: "Here is your summary: they chose Postgres."}
  - name: talks at first
    when: {model_matches: "learner", turn: 1}
    respond: {content: "Here is your summary: they chose Postgres."}
  - name: folds
    when: {tools_include: save_snapshot}
    respond:
      tool_calls:
        - {name: save_snapshot, arguments: {text: "They chose Postgres — größer, 日本語."}}
"""


def _listens(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _serve(directory: Path, *command: str) -> Iterator[str]:
    port = free_port()
    program = str(Path(sys.executable).parent / command[0])
    with process([program, *command[1:], "--port", str(port)], {}, directory / "log"):
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _listens(url), 30, "the server")
        yield url


@pytest.fixture(scope="module")
def llmock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from _serve(tmp_path_factory.mktemp("llmock"), "llmock", "serve")


@pytest.fixture(scope="module")
def fakellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("fakellm")
    (directory / "rules.yaml").write_text(RULES)
    yield from _serve(directory, "fakellm", "serve", "--config", str(directory / "rules.yaml"))


@pytest.fixture
def fold(engine: Engine, environ: dict[str, str]) -> Fold:
    """Fold five snapshots with nothing set but the URL and the model."""

    def run(url: str, model: str) -> Report:
        settings = load_settings(environ | {"OPENAI_BASE_URL": url, "MNEME_LLM__MODEL": model})
        write(engine, "s", range(5))
        return L2Runner("s", settings=settings, engine=engine).run()

    return run


def _post(url: str, body: Any) -> None:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}, method="POST"
    )
    urllib.request.urlopen(request, timeout=10).close()


def _behave(llmock: str, *behaviours: dict[str, Any]) -> None:
    _post(f"{llmock}/_llmock/reset", {})
    _post(f"{llmock}/_llmock/scenario", {"behaviors": list(behaviours)})


def _says(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "reply", "tool_calls": [{"name": name, "arguments": arguments}]}


def _requests(llmock: str) -> int:
    with urllib.request.urlopen(f"{llmock}/_llmock/requests", timeout=10) as response:
        found = json.load(response)
    return len(found["requests"] if isinstance(found, dict) else found)


@pytest.mark.parametrize("path", CHAT_PATHS)
def test_llmock_folds_in_each_of_its_dialects(llmock: str, fold: Fold, engine: Engine, path: str) -> None:
    _behave(llmock, _says("save_snapshot", {"text": "They chose Postgres."}))
    report = fold(llmock + path, "gpt-4.1-mini")
    assert (report.outcome, report.llm_calls, _requests(llmock)) == ("folded", 1, 1)
    assert node(engine, report.node).content == "They chose Postgres."
    assert report.prompt_tokens > 100


def test_llmock_declines(llmock: str, fold: Fold) -> None:
    _behave(llmock, _says("everything_ok", {}))
    assert fold(f"{llmock}/v1", "gpt-4.1-mini").outcome == "declined"


@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
def test_llmock_breaks_a_tool_call_and_is_told(llmock: str, fold: Fold, kind: str) -> None:
    sound = _says("save_snapshot", {"text": "They chose Postgres."})
    _behave(llmock, {"type": "tool_fault", "kind": kind, "times": 1}, sound | {"times": 2})
    report = fold(f"{llmock}/v1", "gpt-4.1-mini")
    assert (report.outcome, report.llm_calls, _requests(llmock)) == ("folded", 2, 2)


def test_llmock_is_asked_once_and_left_alone_when_it_limits_the_rate(llmock: str, fold: Fold, engine: Engine) -> None:
    _behave(llmock, {"type": "fail", "status": 429, "retry_after": 120, "times": None})
    with pytest.raises(TransientFailure, match="429"):
        fold(f"{llmock}/v1", "gpt-4.1-mini")
    assert _requests(llmock) == 1
    (run,) = all_runs(engine, "s")
    assert 110 <= (run.retry_at - run.finished_at).total_seconds() <= 130


def test_llmock_whose_window_is_too_small_has_the_batch_halved(llmock: str, fold: Fold, engine: Engine) -> None:
    too_long = {"type": "fail", "status": 400, "code": "context_length_exceeded", "times": 1}
    _behave(llmock, too_long, _says("save_snapshot", {"text": "They chose Postgres."}))
    report = fold(f"{llmock}/v1", "gpt-4.1-mini")
    assert (report.outcome, report.llm_calls, _requests(llmock)) == ("folded", 2, 2)
    assert len(node(engine, report.node).parent_node_ids) == 2


def test_fakellm_folds(fakellm: str, fold: Fold, engine: Engine) -> None:
    report = fold(f"{fakellm}/v1", "gpt-4o-mini")
    assert (report.outcome, report.llm_calls) == ("folded", 1)
    assert node(engine, report.node).content == "They chose Postgres — größer, 日本語."


def test_fakellm_talks_at_first(fakellm: str, fold: Fold) -> None:
    _post(f"{fakellm}/_fakellm/reset", {})  # it counts the turns of every test's conversation about the same snapshots
    report = fold(f"{fakellm}/v1", "learner")
    assert (report.outcome, report.llm_calls) == ("folded", 2)


def test_fakellm_talks_and_fails(fakellm: str, fold: Fold, engine: Engine) -> None:
    with pytest.raises(ContentFailure, match="prose"):
        fold(f"{fakellm}/v1", "talker")
    assert all_runs(engine, "s")[-1].llm_calls == 3


def test_fakellm_breaks(fakellm: str, fold: Fold) -> None:
    with pytest.raises(FoldFailed, match="500") as raised:
        fold(f"{fakellm}/v1", "broken-1")
    assert raised.value.kind == "transient"
