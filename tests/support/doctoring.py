"""A small memory for the doctor's tests, and ways to break it that no trigger and no foreign key stops."""

import re
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from models import Settings, SummaryDAGStore, SummaryNode, runs, transaction
from models.breaker import Server
from models.claims import InputBudget, claim
from models.runs import Claim, Fold, Usage
from models.settings import MnemeSettings
from tests.support.snapshots import snapshot, write

SERVER = Server("http://model.test/v1", "m")
SETTINGS = Settings(mneme=MnemeSettings(max_level=3))


def must_claim(engine: Engine, session_id: str) -> Claim:
    with transaction(engine) as connection:
        counted = runs.count(connection, session_id, SETTINGS.mneme)
    claimed = claim(engine, counted, SETTINGS.mneme, InputBudget(90_000, 80), worker="w", server=SERVER)
    assert isinstance(claimed, Claim), claimed
    return claimed


def fold(engine: Engine, session_id: str) -> tuple[UUID, UUID]:
    """Fold a session by the run protocol; return the ids of the run and of the node."""
    claimed = must_claim(engine, session_id)
    with transaction(engine) as connection:
        # Long enough to shrink at the next level too.
        node_id = runs.commit_fold(connection, claimed, Fold("A short summary. " * 20, "m", "p1"), Usage())
        runs.count_again(connection, session_id, claimed.run_id, SETTINGS.mneme)
    return claimed.run_id, node_id


def small_memory(engine: Engine) -> dict[str, Any]:
    """Write a fold by a run, a fold by an app, and snapshots that wait; return their ids by name."""
    write(engine, "s", range(5))
    run, folded = fold(engine, "s")
    waiting, old = write(engine, "s", [5, 6])
    other = write(engine, "other", [0])[0]
    with Session(engine) as session, session.begin():
        store = SummaryDAGStore(session)
        one, two = (store.insert_node(snapshot("app", number)) for number in (0, 1))
        parents = tuple(node.id for node in (one, two) if node.id)
        app = store.insert_node(
            SummaryNode(session_id="app", level=2, span_start=1, span_end=20, content="x", parent_node_ids=parents)
        )
        store.mark_superseded(parents)
    nodes = {"waiting": waiting, "old": old, "other": other, "one": one, "two": two, "app": app}
    return {name: node.id for name, node in nodes.items()} | {"run": run, "folded": folded, "unknown": uuid4()}


def bypass(engine: Engine, statements: str, ids: dict[str, Any]) -> None:
    """Run statements, parted by semicolons, as a restore would: without triggers, and so without foreign keys."""
    with engine.begin() as connection:
        connection.execute(text("set local session_replication_role = replica"))
        for statement in filter(str.strip, statements.split(";")):
            named = set(re.findall(r"(?<!:):([a-z]+)", statement))
            connection.execute(text(statement), {name: ids[name] for name in named})
