"""What the database refuses by itself, whoever writes."""

import uuid

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, MetaData, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from models import SummaryDAGStore, SummaryNode
from tests.support.snapshots import snapshot


@pytest.fixture
def nodes(store: SummaryDAGStore, session: Session) -> dict[str, SummaryNode]:
    a, b, other = (store.insert_node(snapshot(s, n)) for s, n in (("s", 0), ("s", 1), ("other", 0)))
    folded = store.insert_node(
        SummaryNode(
            session_id="s", level=2, span_start=1, span_end=10, content="x", parent_node_ids=(a.id,) if a.id else ()
        )
    )
    store.mark_superseded([a.id] if a.id else [])
    session.commit()
    return {"a": a, "b": b, "other": other, "folded": folded}


REFUSED = {
    "superseded by what was not made from it": "update mneme.summary_nodes set superseded_by = :folded where id = :b",
    "an edge across sessions": "insert into mneme.summary_edges values (:folded, :other, 5)",
    "an edge to its own level": "insert into mneme.summary_edges values (:b, :a, 5)",
    "an edge to itself": "insert into mneme.summary_edges values (:b, :b, 5)",
    "an edge changed": "update mneme.summary_edges set ordinal = 9",
    "a message changed": "update mneme.messages set role = 'user'",
    "a summary's text changed": "update mneme.message_parts set content = 'y'",
    "a blank summary": "insert into mneme.message_parts (message_id, part_index, part_type, content)"
    " values (:a, 7, 'text', ' ')",
    "a third part of a summary": "insert into mneme.message_parts (message_id, part_index, part_type, content)"
    " values (:a, 7, 'text', 'visible')",
    "an infinite time": "update mneme.summary_nodes set ended_at = 'infinity' where id = :b",
    "a huge summary": "insert into mneme.message_parts (message_id, part_index, part_type, content)"
    " values (:a, 7, 'text', repeat('x', 32769))",
    "superseded and dismissed": "update mneme.summary_nodes"
    " set dismissed_at = now(), dismissed_reason = 'declined' where id = :a",
    "dismissed without a reason": "update mneme.summary_nodes set dismissed_at = now() where id = :b",
    "dismissed for no known reason": "update mneme.summary_nodes"
    " set dismissed_at = now(), dismissed_reason = 'x' where id = :b",
    "retired while superseding": "update mneme.summary_nodes set retired_at = now(), retired_reason = 'restored'"
    " where id = :folded",
    "retired while superseded": "update mneme.summary_nodes set retired_at = now(), retired_reason = 'restored' where id = :a",
    "degraded without being an extract": "update mneme.summary_nodes set degraded = true where id = :b",
    "the same span twice": "update mneme.summary_nodes set span_start = 1, span_end = 10 where id = :b",
    "a node moved to another session": "update mneme.summary_nodes set session_id = 'other' where id = :b",
    "a reversed span": "update mneme.summary_nodes set span_start = 99 where id = :b",
    "a message with seq that is a summary": "insert into mneme.messages (session_id, seq, role, is_summary)"
    " values ('s', 1, 'user', true)",
    "a message without seq": "insert into mneme.messages (session_id, role) values ('s', 'user')",
    "an empty session id": "insert into mneme.sessions (id) values ('')",
    "a long session id": "insert into mneme.sessions (id) values (repeat('x', 256))",
    "two running runs": "insert into mneme.compaction_runs (session_id, level, lease_expires_at)"
    " values ('s', 2, now()), ('s', 2, now())",
    "a run succeeded without its node": "insert into mneme.compaction_runs"
    " (session_id, level, lease_expires_at, state, finished_at) values ('s', 2, now(), 'succeeded', now())",
    "a run of level 1": "insert into mneme.compaction_runs (session_id, level, lease_expires_at) values ('s', 1, now())",
    "a running run that has finished": "insert into mneme.compaction_runs (session_id, level, lease_expires_at, finished_at)"
    " values ('s', 2, now(), now())",
    "a node without its message": "insert into mneme.summary_nodes (id, session_id, level, span_start, span_end, token_count)"
    " values (:unknown, 's', 1, 100, 101, 1)",
    "a second sweep state": "insert into mneme.sweep_state (only_row) values (false)",
}


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED.keys())
def test_the_database_refuses(engine: Engine, nodes: dict[str, SummaryNode], statement: str) -> None:
    ids = {name: node.id for name, node in nodes.items()} | {"unknown": uuid.uuid4()}
    used = {name: value for name, value in ids.items() if f":{name}" in statement}
    with pytest.raises(DBAPIError) as caught, engine.begin() as connection:
        connection.execute(text(statement), used)
    # By a rule, not because the statement is nonsense (42...).
    assert caught.value.orig is not None
    assert str(getattr(caught.value.orig, "sqlstate", ""))[:2] in ("23", "22", "55")


def test_a_node_that_was_retired_can_no_longer_supersede(engine: Engine, nodes: dict[str, SummaryNode]) -> None:
    with engine.begin() as connection:
        connection.execute(text("update mneme.summary_nodes set superseded_by = null"))
        connection.execute(
            text("update mneme.summary_nodes set retired_at = now(), retired_reason = 'restored' where id = :folded"),
            {"folded": nodes["folded"].id},
        )
    with pytest.raises(DBAPIError, match="is retired and cannot supersede"), engine.begin() as connection:
        connection.execute(
            text("update mneme.summary_nodes set superseded_by = :folded where id = :a"),
            {"folded": nodes["folded"].id, "a": nodes["a"].id},
        )


def test_a_main_apps_autogenerate_does_not_see_our_tables(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), MetaData()) == []


def test_plain_sql_needs_no_ids_times_counters_or_flags(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("insert into mneme.sessions (id) values ('s')"))
        message = connection.execute(
            text("insert into mneme.messages (session_id, seq, role) values ('s', 1, 'user') returning *")
        ).one()
        part = connection.execute(
            text("insert into mneme.message_parts (message_id, part_index, part_type, content)"
                 " values (:m, 0, 'text', 'hello world') returning *"),
            {"m": message.id},
        ).one()  # fmt: skip
        run = connection.execute(
            text(
                "insert into mneme.compaction_runs (session_id, level, lease_expires_at) values ('s', 2, now()) returning *"
            )
        ).one()
    assert part.token_estimate == 3
    assert (run.state, run.attempt, run.llm_calls) == ("running", 1, 0)
