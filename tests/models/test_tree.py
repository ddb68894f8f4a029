"""The tree of a session, read in one statement a level."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from models import transaction
from models.tree import Tree, read_tree
from tests.models.test_claims import commit, must_claim
from tests.support.snapshots import active, snapshot, write


def read(engine: Engine, session_id: str = "s", **options: Any) -> Tree:
    with transaction(engine) as connection:
        found = read_tree(connection, session_id, **{"depth": 9, "most_roots": 100} | options)
    assert found is not None
    return found


@pytest.fixture
def folded(engine: Engine) -> str:
    """Two folds of five snapshots each, and three snapshots after them."""
    for start in (0, 5):
        write(engine, "s", range(start, start + 5))
        commit(engine, must_claim(engine))
    write(engine, "s", range(10, 13))
    write(engine, "other", range(2))
    return "s"


def test_active_nodes_are_roots_and_what_they_were_made_from_lies_below(engine: Engine, folded: str) -> None:
    found = read(engine)
    assert [(root.level, root.span_start, root.span_end) for root in found.roots] == [
        (2, 1, 50), (2, 51, 100), (1, 101, 110), (1, 111, 120), (1, 121, 130),
    ]  # fmt: skip
    assert [parent.span_start for parent in found.roots[0].parents] == [1, 11, 21, 31, 41]
    assert found.roots[0].parent_count == 5
    assert found.roots[2].parents == ()
    assert [root.id for root in found.roots] == [node.id for node in active(engine, "s")]
    assert (found.roots[0].started_at, found.roots[0].ended_at) == ("2026-03-01T09:00:00Z", "2026-03-05T10:00:00Z")
    assert found.roots[0].opening is None


def test_the_totals_are_those_of_the_whole_session(engine: Engine, folded: str, scalar: Callable[..., Any]) -> None:
    for found in (read(engine), read(engine, depth=1, most_roots=1, level=2)):
        assert (found.snapshots, found.folds) == (13, 2)
        assert found.active_tokens == sum(node.token_count or 0 for node in active(engine, "s"))
        assert found.snapshot_tokens == scalar(
            "select sum(token_count) from mneme.summary_nodes where session_id = 's' and level = 1"
        )


def test_limit_keeps_the_newest_roots_in_order(engine: Engine, folded: str) -> None:
    found = read(engine, most_roots=2)
    assert [root.span_start for root in found.roots] == [111, 121]
    assert found.older_roots == 3


def test_level_keeps_roots_of_that_level_and_up(engine: Engine, folded: str) -> None:
    found = read(engine, level=2, most_roots=1)
    assert [root.span_start for root in found.roots] == [51]
    assert found.older_roots == 1
    assert read(engine, level=3).roots == ()


def test_depth_leaves_out_what_lies_deeper_but_not_that_it_is_there(engine: Engine, folded: str) -> None:
    root = read(engine, depth=1).roots[0]
    assert (root.parents, root.parent_count) == ((), 5)


def test_the_beginning_of_the_contents_if_asked_for(engine: Engine, folded: str) -> None:
    root = read(engine, with_text=True).roots[-1]
    assert root.opening is not None
    assert root.opening.startswith("Snapshot 12 of s: ")
    assert len(root.opening) == 200


def test_retired_nodes_are_not_there(engine: Engine, folded: str, scalar: Callable[..., Any]) -> None:
    before = read(engine)
    newest = before.roots[-1]
    scalar("update mneme.summary_nodes set retired_at = now(), retired_reason = 'restored' where id = :i", i=newest.id)
    after = read(engine)
    assert after.roots == before.roots[:-1]
    assert (after.snapshots, after.active_tokens) == (12, before.active_tokens - newest.token_count)


def test_the_earliest_and_latest_times_are_told(engine: Engine, scalar: Callable[..., Any]) -> None:
    scalar("select mneme.write_l1_snapshot('s', 1, 2, 'x', '0002-01-01 00:00+00', '9998-12-31 23:59:59+00')")
    (root,) = read(engine).roots
    assert (root.started_at, root.ended_at) == ("0002-01-01T00:00:00Z", "9998-12-31T23:59:59Z")


def test_an_unknown_session_has_none_and_an_empty_one_has(engine: Engine, scalar: Callable[..., Any]) -> None:
    with transaction(engine) as connection:
        assert read_tree(connection, "unknown", depth=1, most_roots=1) is None
    scalar("insert into mneme.sessions (id) values ('empty')")
    found = read(engine, "empty")
    assert (found.roots, found.snapshots, found.active_tokens, found.snapshot_tokens) == ((), 0, 0, 0)


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_one_statement_a_level_however_many_nodes(engine: Engine, folded: str) -> None:
    write(engine, "s", range(20, 200))
    with transaction(engine) as connection, statements(engine) as seen:
        read_tree(connection, "s", depth=9, most_roots=1000)
    assert len(seen) == 3  # totals, roots, the one level below them


def test_deeper_levels(engine: Engine, new_session: Any) -> None:
    from models import SummaryDAGStore, SummaryNode

    with new_session.begin() as session:
        store = SummaryDAGStore(session)
        nodes = [store.insert_node(snapshot("s", n)) for n in range(4)]
        for level in (2, 3):
            nodes = [
                store.insert_node(
                    SummaryNode(
                        session_id="s", level=level, content="x", parent_node_ids=tuple(n.id for n in pair if n.id),
                        span_start=pair[0].span_start, span_end=pair[1].span_end,
                    )
                )
                for pair in zip(nodes[::2], nodes[1::2], strict=True)
            ]  # fmt: skip
            for node in nodes:
                store.mark_superseded(node.parent_node_ids)
    (root,) = read(engine).roots
    assert [[leaf.span_start for leaf in middle.parents] for middle in root.parents] == [[1, 11], [21, 31]]
    assert read(engine).folds == 3
    assert read(engine, depth=2).roots[0].parents[0].parents == ()
