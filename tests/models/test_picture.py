"""The whole DAG of a session with its history, in two statements."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from models import SummaryDAGStore, SummaryNode, transaction
from models.picture import Picture, PictureNode, read_picture
from tests.models.test_claims import commit, must_claim
from tests.models.test_tree import statements
from tests.support.snapshots import active, node, write


def read(engine: Engine, session_id: str = "s") -> Picture:
    with transaction(engine) as connection:
        found = read_picture(connection, session_id)
    assert found is not None
    return found


def by_id(found: Picture, node_id: UUID | None) -> PictureNode:
    return next(one for one in found.nodes if one.id == node_id)


@pytest.fixture
def fold(engine: Engine) -> SummaryNode:
    """A fold of five snapshots; two more wait, and another session has one."""
    write(engine, "s", range(5))
    commit(engine, must_claim(engine))
    write(engine, "s", range(5, 7))
    write(engine, "other", [0])
    return active(engine, "s")[0]


def test_every_node_is_there_with_text_and_edges(engine: Engine, fold: SummaryNode) -> None:
    found = read(engine)
    assert [(one.level, one.span_start) for one in found.nodes] == [
        *((1, start) for start in (1, 11, 21, 31, 41, 51, 61)), (2, 1),
    ]  # fmt: skip
    assert [one.state for one in found.nodes] == ["superseded"] * 5 + ["active"] * 3
    summary = found.nodes[-1]
    assert summary.parent_ids == tuple(one.id for one in found.nodes[:5])
    assert {one.content for one in found.nodes} == {node(engine, one.id).content for one in found.nodes}
    assert {one.superseded_by for one in found.nodes[:5]} == {fold.id}
    assert {one.covered for one in found.nodes[:5]} == {((summary.created_at, None),)}
    assert summary.created_at > found.nodes[4].created_at
    assert (found.nodes[0].started_at, found.nodes[0].ended_at) == ("2026-03-01T09:00:00Z", "2026-03-01T10:00:00Z")


def test_dismissed_and_degraded(engine: Engine, fold: SummaryNode, scalar: Callable[..., Any]) -> None:
    late = active(engine, "s")[-1]
    scalar(
        "update mneme.summary_nodes set dismissed_at = '2030-01-02 03:04:05.000006+00', dismissed_reason = 'declined'"
        " where id = :i", i=late.id,
    )  # fmt: skip
    scalar("update mneme.summary_nodes set degraded = true, compaction_level = 3 where id = :i", i=fold.id)
    found = read(engine)
    dismissed, degraded = by_id(found, late.id), by_id(found, fold.id)
    assert (dismissed.state, dismissed.dismissed_at) == ("dismissed", "2030-01-02T03:04:05.000006Z")
    assert (degraded.state, degraded.degraded) == ("active", True)


def test_redone_and_undone_folds_are_retired(engine: Engine, fold: SummaryNode, scalar: Callable[..., Any]) -> None:
    with Session(engine) as session, session.begin():
        redone = SummaryDAGStore(session).insert_node(
            SummaryNode(
                session_id="s", level=2, span_start=fold.span_start, span_end=fold.span_end, content="redone",
                started_at=fold.started_at, ended_at=fold.ended_at, parent_node_ids=fold.parent_node_ids,
            )
        )  # fmt: skip
    scalar("update mneme.summary_nodes set superseded_by = :n where superseded_by = :o", n=redone.id, o=fold.id)
    scalar(
        "update mneme.summary_nodes set retired_at = clock_timestamp(), retired_reason = 'replaced', replaced_by = :n"
        " where id = :o", n=redone.id, o=fold.id,
    )  # fmt: skip
    found = read(engine)
    old, new = by_id(found, fold.id), by_id(found, redone.id)
    assert (old.state, old.retired_reason, old.replaced_by, new.state) == ("retired", "replaced", new.id, "active")
    assert found.nodes[0].covered == ((old.created_at, old.retired_at), (new.created_at, None))
    # Undone: the snapshots are active again, and were covered for a while.
    scalar("update mneme.summary_nodes set superseded_by = null where superseded_by = :n", n=redone.id)
    scalar(
        "update mneme.summary_nodes set retired_at = clock_timestamp(), retired_reason = 'restored' where id = :n",
        n=redone.id,
    )
    first = read(engine).nodes[0]
    assert (first.state, len(first.covered)) == ("active", 2)
    assert all(until is not None for _, until in first.covered)


def test_two_statements_however_many_nodes(engine: Engine, fold: SummaryNode) -> None:
    write(engine, "s", range(20, 120))
    with transaction(engine) as connection, statements(engine) as seen:
        found = read_picture(connection, "s")
    assert found is not None
    assert (len(found.nodes), len(seen)) == (108, 2)


def test_an_unknown_session_has_none_and_an_empty_one_no_nodes(engine: Engine, scalar: Callable[..., Any]) -> None:
    with transaction(engine) as connection:
        assert read_picture(connection, "unknown") is None
    scalar("insert into mneme.sessions (id) values ('empty')")
    assert read(engine, "empty").nodes == ()
