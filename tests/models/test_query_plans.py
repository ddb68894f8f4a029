"""FAILURES 43: what a job, a sweep and a read cost must not grow with history. Read from the plans on 30,000 nodes."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, TextClause, text

from models import make_engine, sql, tree_sql
from tests.support.servers import Postgres

pytestmark = pytest.mark.xdist_group("plans")  # one fixture of the module is dear

# One session with a long history, folded but for its last 40; a thousand others with a few nodes each. All swept but 30.
_FILL = """
    truncate mneme.sessions, mneme.messages, mneme.message_parts, mneme.summary_nodes, mneme.summary_edges,
             mneme.compaction_runs, mneme.breakers;
    set local session_replication_role = replica;
    insert into mneme.sessions (id) select 's' || g from generate_series(0, 1000) g;
    create temporary table made on commit drop as
        select gen_random_uuid() as id, case when g < 20000 then 's0' else 's' || g % 1000 end as session_id, g
          from generate_series(1, 30000) g;
    insert into mneme.messages (id, session_id, role, is_summary) select id, session_id, 'assistant', true from made;
    insert into mneme.message_parts (message_id, part_index, part_type, content, token_estimate)
        select id, 0, 'text', 'x y z', 2 from made;
    insert into mneme.summary_nodes (id, session_id, level, span_start, span_end, token_count, superseded_by, swept_at)
        select id, session_id, 1, g * 10, g * 10 + 9, 3,
               case when g < 19960 or g > 20100 then '11111111-1111-4111-8111-111111111111'::uuid end,
               case when g < 29970 then now() end from made;
    insert into mneme.messages (session_id, seq, role) select 's0', g, 'user' from generate_series(1, 30000) g;
    insert into mneme.compaction_runs (session_id, level, lease_expires_at, state, finished_at, started_at, retry_at)
        select 's' || g % 1000, 2, now(), 'failed', now(), now() - make_interval(secs => g), case when g < 5 then now() end
          from generate_series(1, 20000) g;
"""

_PARAMETERS = {
    "session_id": "s0", "session_ids": ["s0", "s1", "s2"], "level": 1, "most": 20, "enough": 21, "threshold": 5,
    "max_level": 2, "span_start": 10**6, "run_id": uuid4(), "node_id": uuid4(), "node_ids": [uuid4()],
    "wanted": 1, "grace_seconds": 0.0, "requeue_seconds": 120.0, "with_text": True,
    "base_url": "http://model.test/v1", "model": "m", "levels": [2, 2, 2],
    "cap_hour": 0, "cap_day": 0, "cap_session_hour": 0, "cap_session_day": 0,
    "first": UUID(int=0xABCD << 112), "last": UUID(int=(0xABCE << 112) - 1),
}  # fmt: skip


@pytest.fixture(scope="module")
def filled(postgres: Postgres, shared_database: str) -> Iterator[Engine]:
    postgres.execute(f"create database plans template {shared_database}")
    engine = make_engine(postgres.url("plans").replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.connection.driver_connection.execute(_FILL)  # type: ignore[union-attr]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum analyze"))
    yield engine
    engine.dispose()
    postgres.execute("drop database plans with (force)")


def plan(engine: Engine, statement: TextClause, **others: object) -> dict[str, Any]:
    explained = text(f"explain (analyze, format json) {statement.text}")
    explained = explained.bindparams(*(statement._bindparams[name] for name in statement._bindparams))
    used = {name: value for name, value in (_PARAMETERS | others).items() if name in statement._bindparams}
    assert set(statement._bindparams) == set(used)
    with engine.begin() as connection:
        found: dict[str, Any] = connection.execute(explained, used).scalar_one()[0]["Plan"]
        connection.rollback()
    return found


def nodes_of(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield found
    for below in found.get("Plans", []):
        yield from nodes_of(below)


# How many rows any one step may touch: a batch or two, never the session's 20,000 nodes nor the table's 30,000.
HOT = {
    "count": (sql.COUNT, 25),
    "holds": (sql.READ_HOLDS, 25),
    "oldest uncovered": (sql.OLDEST_UNCOVERED, 25),
    "declined before": (sql.DECLINED_BEFORE, 25),
    "unswept": (sql.UNSWEPT, 35),
    "retries due": (sql.RETRIES_DUE, 25),
    "holds of the due": (sql.HOLDS, 25),
    "running": (sql.RUNNING, 25),
    "to be retried": (sql.TO_BE_RETRIED, 25),
    "active nodes": (sql.ACTIVE_NODES, 60),
    "latest node": (sql.LATEST_NODE, 5),
    "node by id": (sql.NODE_BY_ID, 5),
    "successors": (sql.SUCCESSORS, 5),
    "expired leases": (sql.EXPIRE_MANY, 25),
    "roots of the tree": (tree_sql.TREE_ROOTS, 25),
    "a level of the tree": (tree_sql.TREE_PARENTS, 25),
    "a node by how its id begins": (tree_sql.NODES_BY_ID, 10),
    "made from": (tree_sql.PARENTS, 25),
    "what lies above": (tree_sql.SUCCESSORS, 5),
}


@pytest.mark.parametrize(("statement", "most_rows"), HOT.values(), ids=HOT.keys())
def test_no_step_of_the_plan_touches_more_than_what_is_new(
    filled: Engine, statement: TextClause, most_rows: int
) -> None:
    for step in nodes_of(plan(filled, statement)):
        if step.get("Relation Name") in ("summary_nodes", "compaction_runs", "message_parts", "messages"):
            assert step["Node Type"] != "Seq Scan", step
            touched = sum(
                step.get(key, 0) for key in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
            )
            assert touched <= most_rows, step


def test_a_plan_without_its_index_would_be_noticed(filled: Engine) -> None:
    """The check above can fail: the same count by a column that no index has."""
    slow = text("select count(*) from mneme.summary_nodes where session_id || '' = :session_id")
    assert any(step["Node Type"] == "Seq Scan" for step in nodes_of(plan(filled, slow)))


def test_gaps_read_only_messages_that_lie_in_holes(filled: Engine) -> None:
    steps = list(nodes_of(plan(filled, sql.COVERAGE_GAPS)))
    read = [s for s in steps if s.get("Relation Name") == "messages"]
    assert read
    assert sum(step["Actual Rows"] * step["Actual Loops"] for step in read) < 100


def test_totals_of_a_tree_read_the_nodes_of_its_session_alone(filled: Engine) -> None:
    """They grow with the session; not with the table, nor with the conversation log."""
    found = plan(filled, tree_sql.TREE_TOTALS, session_id="s1")
    steps = list(nodes_of(found))
    assert {s["Relation Name"] for s in steps if "Relation Name" in s} == {"sessions", "messages", "summary_nodes"}
    assert all(s["Node Type"] != "Seq Scan" and s["Actual Rows"] <= 25 for s in steps)
