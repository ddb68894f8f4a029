"""Level 1 snapshots for the tests: ten messages each, on a day each, with text that tells them apart."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from models import SummaryDAGStore, SummaryNode

DAY_ONE = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)


def content(session_id: str, number: int, words: int = 60) -> str:
    return f"Snapshot {number} of {session_id}: " + f"decision{number} " * words


def snapshot(session_id: str, number: int, /, **values: Any) -> SummaryNode:
    day = DAY_ONE + timedelta(days=number)
    defaults: dict[str, Any] = {
        "session_id": session_id,
        "level": 1,
        "span_start": number * 10 + 1,
        "span_end": number * 10 + 10,
        "started_at": day,
        "ended_at": day + timedelta(hours=1),
        "content": content(session_id, number),
    }
    return SummaryNode(**{**defaults, **values})


def write(engine: Engine, session_id: str, numbers: range | list[int], **values: Any) -> list[SummaryNode]:
    with Session(engine) as session, session.begin():
        store = SummaryDAGStore(session)
        return [store.insert_node(snapshot(session_id, number, **values)) for number in numbers]


def active(engine: Engine, session_id: str) -> list[SummaryNode]:
    with Session(engine) as session:
        return SummaryDAGStore(session).get_active_nodes(session_id)


def node(engine: Engine, node_id: Any) -> SummaryNode:
    with Session(engine) as session:
        found = SummaryDAGStore(session).get_node_by_id(node_id)
    assert found is not None
    return found


def all_runs(engine: Engine, session_id: str) -> list[Any]:
    with engine.connect() as connection:
        statement = text("select * from mneme.compaction_runs where session_id = :s order by started_at, id")
        return list(connection.execute(statement, {"s": session_id}))
