"""Reading memory back: within budget, in order, whole nodes, the same from Python and from SQL."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text

from models import StorageError, estimate_tokens, memory, transaction
from models.settings import MnemeSettings
from tests.models.test_claims import commit, must_claim
from tests.support.snapshots import active, write

SETTINGS = MnemeSettings()


def read(engine: Engine, budget: int, session_id: str = "s", settings: MnemeSettings = SETTINGS) -> str:
    with transaction(engine) as connection:
        return memory(connection, session_id, budget, settings)


@pytest.fixture
def long_session(engine: Engine) -> str:
    """Eight level 2 nodes of five each, four snapshots after them, and one that came late."""
    for start in range(0, 40, 5):
        write(engine, "s", range(start, start + 5))
        commit(engine, must_claim(engine))
    write(engine, "s", range(40, 44))
    write(engine, "other", range(3), content="a secret of another session")
    return "s"


def spans(told: str) -> list[int]:
    return [int(start) for start in re.findall(r"messages (-?\d+) to", told)]


def test_everything_when_there_is_room(engine: Engine, long_session: str) -> None:
    told = read(engine, 1_000_000)
    long_term, recent = told.split("# Recent memory")
    assert long_term.startswith("# Long-term memory\n\n[2026-03-01 to 2026-03-05, messages 1 to 50, node ")
    assert spans(long_term) == [n * 50 + 1 for n in range(8)]
    assert spans(recent) == [401, 411, 421, 431]
    for node in active(engine, "s"):
        assert f"node {node.id}]\n{node.content}" in told
    assert "another session" not in told


@pytest.mark.parametrize("budget", [*range(200, 20_001, 900)])
def test_each_part_keeps_its_share_and_starts_from_the_newest(engine: Engine, long_session: str, budget: int) -> None:
    told = read(engine, budget)
    long_term, recent = told.split("\n\n# Recent memory")
    for part, fraction, everything in ((long_term, 0.05, 8), (recent, 0.15, 4)):
        found = spans(part)
        assert found == sorted(found)
        assert found
        assert estimate_tokens(part) <= budget * fraction or len(found) == 1
        newest = 351 if everything == 8 else 431
        assert (
            found
            == list(
                range(newest, newest - (50 if everything == 8 else 10) * len(found), -(50 if everything == 8 else 10))
            )[::-1]
        )


def test_sql_gives_the_same(engine: Engine, long_session: str, scalar: Callable[..., Any]) -> None:
    for budget in (0, 200, 2000, 20_000):
        assert scalar("select mneme.memory('s', :b)", b=budget) == read(engine, budget)
    more = MnemeSettings(l1_budget_fraction=0.5, l2_budget_fraction=0.5)
    assert scalar("select mneme.memory('s', 2000, 0.5, 0.5)") == read(engine, 2000, settings=more)
    assert scalar("select mneme.memory(session_id => 's', token_budget => 200)") == read(engine, 200)


def test_what_is_not_known_is_not_invented(engine: Engine, scalar: Callable[..., Any]) -> None:
    assert read(engine, 1000, "unknown") == ""
    assert read(engine, 1000, "nul\0") == ""
    write(engine, "s", [0], started_at=None, ended_at=None)
    assert read(engine, 1000).startswith("# Recent memory\n\n[date unknown, messages 1 to 10, node ")
    with pytest.raises(StorageError, match="token budget must be 0 or more"):
        read(engine, -1)


def test_a_long_history_of_active_nodes_costs_one_statement(engine: Engine) -> None:
    write(engine, "s", range(300), content="x y z")
    with transaction(engine) as connection:
        connection.execute(text("set local statement_timeout = '1s'"))
        assert len(spans(memory(connection, "s", 1000, SETTINGS))) < 300
