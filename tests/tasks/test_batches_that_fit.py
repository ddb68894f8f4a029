"""No request is larger than the model's window, whatever waits and in whatever script; and the smallest batch folds too."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from benchmarks.tokens import TEXTS, real_counter
from models import load_settings
from models.doctor import diagnose
from tasks import L2Runner
from tests.support import model_server as says
from tests.support.model_server import ModelServer, model_server
from tests.support.snapshots import active, node, write

WINDOW = 4000
DENSE = "2026-03-01T09:14:22Z run 3f2a9c1e-07e4 failed: 10.0.12.7:5432, /var/log/app.log (3/5); " * 3
CONTENTS = [text for texts in TEXTS.values() for text in texts] + [DENSE]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        server.answer = says.saves("They chose Postgres.")
        yield server


@pytest.fixture(scope="module")
def count() -> Callable[[str], int]:
    return real_counter()


def sent(call: says.Call, count: Callable[[str], int]) -> int:
    """The real tokens of a request: every message, and the tools."""
    messages = sum(count(message["content"]) + 4 for message in call.body["messages"])
    return messages + count(json.dumps(call.body["tools"]))


def fold_all(engine: Engine, environ: dict[str, str], server: ModelServer, **more: str) -> int:
    settings = load_settings(environ | {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url} | more)
    folds = 0
    while L2Runner("s", settings=settings, engine=engine).run().outcome == "folded":
        folds += 1
    assert {finding.rule.name for finding in diagnose(engine, settings) if finding.violations} == set()
    return folds


def test_a_backlog_of_three_hundred_at_a_window_of_four_thousand(
    engine: Engine, environ: dict[str, str], server: ModelServer, broker: redis.Redis, count: Callable[[str], int]
) -> None:
    for number in range(300):
        write(engine, "s", [number], content=f"{number}: {CONTENTS[number % len(CONTENTS)]}")
    folds = fold_all(engine, environ, server, MNEME_LLM__CONTEXT_WINDOW=str(WINDOW))
    assert folds == len(server.calls)
    for call in server.calls:
        tokens = sent(call, count)
        assert tokens <= 0.75 * WINDOW
        assert tokens + call.body["max_completion_tokens"] <= WINDOW
    # Small windows are used: were each fold made of two, there would be a hundred and fifty.
    assert folds < 60
    left = [each for each in active(engine, "s") if each.level == 1]
    assert len(left) < 5
    shown = "".join(call.user for call in server.calls)
    assert all(f"\n{number}: " in shown for number in range(300 - len(left)))


@pytest.mark.parametrize("model", ["m", "extract"])
def test_five_snapshots_of_ten_words(
    engine: Engine, environ: dict[str, str], server: ModelServer, broker: redis.Redis, model: str
) -> None:
    words = "Ada chose Postgres over MySQL for its partial indexes today."
    write(engine, "s", range(5), content=words)
    assert fold_all(engine, environ, server, MNEME_LLM__MODEL=model) == 1
    (fold,) = active(engine, "s")
    assert len(fold.parent_node_ids) == 5


def test_what_the_estimate_took_for_shorter_than_it_is_is_halved(
    engine: Engine, environ: dict[str, str], server: ModelServer, broker: redis.Redis, count: Callable[[str], int]
) -> None:
    """Rare characters have more tokens than anybody estimates; the server says so."""
    limits: list[float] = []

    def strict(call: says.Call) -> None:
        limits.append(0.8 * sent(call, count))
        if sent(call, count) > limits[0]:
            return says.fails(400, "context_length_exceeded")(call)
        return says.saves("They chose Postgres.")(call)

    server.answer = strict
    write(engine, "s", range(8), content="ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ᛫ᚠᛁᚱᚪ᛫ " * 8)
    assert fold_all(engine, environ, server) == 1
    assert len(server.calls) == 2
    first: Any = node(engine, active(engine, "s")[0].id)
    assert len(first.parent_node_ids) == 4
