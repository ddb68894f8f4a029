"""``mneme memory``: the command, SQL and Python say the same, on every LoCoMo session and many budgets."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine

from models import estimate_tokens, memory, transaction
from models.settings import Settings
from tasks import L2Runner
from tests.support.locomo import FILE, lines, needs_locomo
from tests.support.processes import mneme, run
from tests.support.snapshots import active, write
from tests.support.terminal import FORBIDDEN, HOSTILE, on_terminal

HEADINGS = {"# Long-term memory": 0.05, "# Recent memory": 0.15}


def read(engine: Engine, settings: Settings, session_id: str, budget: int) -> str:
    with transaction(engine) as connection:
        return memory(connection, session_id, budget, settings.mneme)


def parts(told: str) -> dict[str, str]:
    """Return the text of each part by its heading; the heading counts as part of it."""
    found = re.split(r"(?:^|\n\n)(?=# (?:Long-term|Recent) memory\n\n\[)", told)
    return {part.partition("\n")[0]: part for part in found if part}


@needs_locomo
def test_all_of_locomo_at_many_budgets(
    engine: Engine, environ: dict[str, str], settings: Settings, scalar: Callable[..., Any]
) -> None:
    assert run(mneme("import", str(FILE)), environ).returncode == 0
    sessions = sorted({line["session_id"] for line in lines()})
    for session_id in sessions:
        while L2Runner(session_id, settings=settings, engine=engine).call():
            pass
    # Folds took the oldest twenty at a time; what is left is at most four snapshots.
    for session_id in sessions:
        nodes = {str(node.id): node for node in active(engine, session_id)}
        assert {node.level for node in nodes.values()} >= {2}
        for budget in range(200, 20_001, 200):
            told = read(engine, settings, session_id, budget)
            assert scalar("select mneme.memory(:s, :b)", s=session_id, b=budget) == told
            check(told, nodes, budget)

    def command(asked: tuple[str, int]) -> None:
        session_id, budget = asked
        done = run(mneme("memory", session_id, "--budget", str(budget)), environ)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == read(engine, settings, session_id, budget) + "\n"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(command, [(s, b) for s in sessions for b in (200, 2000, 8000, 20_000)]))


def check(told: str, nodes: dict[str, Any], budget: int) -> None:
    """Each part is in the order of the conversation, of whole nodes, and within its share or the newest node alone."""
    levels = {"# Long-term memory": lambda level: level > 1, "# Recent memory": lambda level: level == 1}
    found = parts(told)
    for heading, of_part in levels.items():
        every = [node for node in nodes.values() if of_part(node.level)]
        assert (heading in found) == bool(every)
        if not every:
            continue
        part = found[heading]
        chosen = [nodes[node_id] for node_id in re.findall(r", node ([0-9a-f-]{36})\]\n", part)]
        assert chosen == sorted(every, key=lambda node: node.span_start)[-len(chosen) :]
        for node in chosen:
            assert node.content in part
        assert len(chosen) == 1 or estimate_tokens(part) <= budget * HEADINGS[heading]


def test_the_shares_of_the_settings_are_used(engine: Engine, environ: dict[str, str], settings: Settings) -> None:
    write(engine, "s", range(4))
    few = run(mneme("memory", "s", "--budget", "1000"), environ).stdout
    more = run(mneme("memory", "s", "--budget", "1000"), environ | {"MNEME_MNEME__L1_BUDGET_FRACTION": "0.9"}).stdout
    assert few.count(", node ") < more.count(", node ")


def test_json(engine: Engine, environ: dict[str, str], settings: Settings) -> None:
    write(engine, "s", range(2))
    done = run(mneme("memory", "s", "--budget", "1000", "--json"), environ)
    assert json.loads(done.stdout) == {
        "session_id": "s", "token_budget": 1000, "memory": read(engine, settings, "s", 1000),
    }  # fmt: skip


def test_unknown_and_empty_sessions(environ: dict[str, str], scalar: Callable[..., Any]) -> None:
    done = run(mneme("memory", "unknown", "--budget", "1"), environ)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "mneme: there is no session 'unknown'\n")
    scalar("insert into mneme.sessions (id) values ('empty')")
    done = run(mneme("memory", "empty", "--budget", "1"), environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


@pytest.mark.parametrize("arguments", [[], ["--budget", "-1"], ["--budget", "many"], ["--budget", str(2**31)]])
def test_wrong_usage(arguments: list[str], environ: dict[str, str]) -> None:
    done = run(mneme("memory", "s", *arguments), environ)
    assert (done.returncode, done.stdout) == (2, "")


def test_exact_into_a_pipe_and_harmless_on_a_terminal(
    engine: Engine, environ: dict[str, str], settings: Settings
) -> None:
    text = HOSTILE.replace("\r", "")
    write(engine, "s", [0], content=text)
    command = mneme("memory", "s", "--budget", "1000")
    piped = run(command, environ | {"PYTHONIOENCODING": "ascii"}).stdout
    assert piped == read(engine, settings, "s", 1000) + "\n"
    assert text.replace("\0", "") in piped
    shown = on_terminal(command, environ)
    assert not FORBIDDEN.search(shown), ascii(shown)
    assert "\\x1b[2J\\x1b]0;owned\\x07one\ntwo" in shown
