"""The six methods of SummaryDAGStore, on a real Postgres."""

import json
import subprocess
import sys
import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from models import InvalidNode, MessageSpan, NodeExists, SummaryDAGStore, SummaryNode, SupersedeError
from tests.support.processes import clean_environ
from tests.support.snapshots import DAY_ONE, snapshot, write


def fold(store: SummaryDAGStore, parents: list[SummaryNode], **values: object) -> SummaryNode:
    """Write a level 2 node of the parents, the way a caller would."""
    defaults = {
        "session_id": parents[0].session_id,
        "level": parents[0].level + 1,
        "span_start": min(p.span_start for p in parents),
        "span_end": max(p.span_end for p in parents),
        "content": "A short summary.",
        "parent_node_ids": tuple(p.id for p in parents),
    }
    return store.insert_node(SummaryNode(**{**defaults, **values}))


# ------------------------------------------------------------------------------------------------ insert_node


def test_the_smallest_node_gets_everything_else_from_the_database(store: SummaryDAGStore) -> None:
    node = store.insert_node(SummaryNode(session_id="s", level=1, span_start=1, span_end=9, content="Hello there."))
    assert (node.kind, node.level, node.superseded, node.degraded, node.parent_node_ids) == (
        "leaf",
        1,
        False,
        False,
        (),
    )
    assert node.id is not None
    assert node.token_count == 3
    assert node.created_at is not None
    assert abs(datetime.now(UTC) - node.created_at) < timedelta(minutes=1)
    assert (node.started_at, node.ended_at) == (None, None)


def test_a_node_is_a_message_with_a_text_and_a_compaction_part(store: SummaryDAGStore, session: Session) -> None:
    node = store.insert_node(snapshot("s", 0, model="m"))
    message = session.execute(text("select * from mneme.messages")).one()
    assert (message.id, message.session_id, message.seq, message.is_summary, message.model) == (
        node.id, "s", None, True, "m",
    )  # fmt: skip
    parts = session.execute(text("select * from mneme.message_parts order by part_index")).all()
    assert [part.part_type for part in parts] == ["text", "compaction"]
    assert parts[0].content == node.content
    assert parts[0].token_estimate == node.token_count
    assert json.loads(parts[1].content) == {
        "summary_node_id": str(node.id),
        "level": 1,
        "compacted_message_count": 10,
        "compacted_token_count": None,
    }


def test_a_condensed_node_counts_what_lies_under_it(store: SummaryDAGStore, session: Session) -> None:
    parents = [store.insert_node(snapshot("s", n)) for n in range(3)]
    node = fold(store, parents)
    assert node.kind == "condensed"
    assert node.parent_node_ids == tuple(p.id for p in parents)
    assert (node.started_at, node.ended_at) == (parents[0].started_at, parents[-1].ended_at)
    part = session.execute(
        text("select content from mneme.message_parts where message_id = :i and part_index = 1"), {"i": node.id}
    ).scalar_one()
    told = json.loads(part)
    assert told["compacted_message_count"] == 30
    assert told["compacted_token_count"] == sum(p.token_count or 0 for p in parents)


def test_the_order_of_the_parents_is_kept(store: SummaryDAGStore) -> None:
    parents = [store.insert_node(snapshot("s", n)) for n in range(4)]
    shuffled = [parents[2], parents[0], parents[3], parents[1]]
    assert fold(store, shuffled).parent_node_ids == tuple(p.id for p in shuffled)


def test_the_given_token_count_is_kept_as_reported(store: SummaryDAGStore) -> None:
    node = store.insert_node(snapshot("s", 0, token_count=123_456))
    assert node.reported_tokens == 123_456
    assert node.token_count != 123_456


def test_the_id_comes_from_the_node_else_from_the_generator(store: SummaryDAGStore) -> None:
    mine, made = uuid.uuid4(), uuid.uuid4()
    assert store.insert_node(snapshot("s", 0, id=mine)).id == mine
    assert store.insert_node(snapshot("s", 1), id_generator=lambda: made).id == made


def test_a_taken_id_is_refused_and_the_transaction_lives_on(store: SummaryDAGStore, session: Session) -> None:
    first = store.insert_node(snapshot("s", 0))
    with pytest.raises(NodeExists, match=f"the id {first.id} is taken"):
        store.insert_node(snapshot("s", 1, id=first.id))
    store.insert_node(snapshot("s", 2))
    session.commit()
    assert [node.span_start for node in store.get_active_nodes("s")] == [1, 21]


def test_a_taken_span_is_refused(store: SummaryDAGStore) -> None:
    store.insert_node(snapshot("s", 0))
    with pytest.raises(NodeExists, match="messages 1 to 10 already have a Level 1 snapshot"):
        store.insert_node(snapshot("s", 0))


BAD = {
    "blank": ({"content": " \n\t\u200b"}, "blank"),
    "too long": ({"content": "x" * 32_769}, "32769 bytes"),
    "too long in bytes": ({"content": "é" * 16_385}, "32770 bytes"),
    "nothing but NUL": ({"content": "\0\0"}, "blank"),
    "reversed span": ({"span_start": 9, "span_end": 1}, "reversed"),
    "reversed times": ({"started_at": DAY_ONE + timedelta(days=9), "ended_at": DAY_ONE}, "reversed"),
    "time without a zone": ({"started_at": datetime(2026, 3, 1)}, "time zone"),  # noqa: DTZ001
    "no session": ({"session_id": ""}, "1 to 255 bytes"),
    "long session": ({"session_id": "é" * 128}, "1 to 255 bytes"),
    "session with NUL": ({"session_id": "a\0b"}, "NUL"),
    "level 0": ({"level": 0}, "level"),
    "negative tokens": ({"token_count": -1}, "token_count"),
    "too many tokens": ({"token_count": 2**40}, "token_count"),
    "span beyond bigint": ({"span_end": 2**63}, "span_end"),
    "largest bigint": ({"span_end": 2**63 - 1}, "span_end"),
    "span as text": ({"span_end": "9"}, "span_end"),
    "content as bytes": ({"content": b"x"}, "content"),
    "infinite time": ({"ended_at": datetime.max.replace(tzinfo=UTC)}, "years 2 and 9998"),
    "false for a number": ({"token_count": False}, "token_count"),
    "a fraction of a level": ({"level": 1.0}, "level"),
    "a compaction level beyond three": ({"compaction_level": 4}, "compaction_level"),
    "degraded as a number": ({"degraded": 1}, "degraded"),
    "degraded without being an extract": ({"degraded": True}, "degraded"),
    "model with NUL": ({"model": "a\0b"}, "model must be text without NUL"),
    "model with a surrogate": ({"model": "a\ud800"}, "model must be text"),
    "prompt version as a number": ({"prompt_version": 5}, "prompt_version"),
    "id as text": ({"id": "nope"}, "id must be a UUID"),
    "no list of parents": ({"parent_node_ids": None}, "parent_node_ids"),
    "invisible": ({"content": "\u2800\u3164\u115f\U000e0020"}, "blank"),
    "leaf with parents": ({"parent_node_ids": (uuid.uuid4(),)}, "no parents"),
    "condensed without": ({"level": 2}, "needs parents"),
}


@pytest.mark.parametrize(("values", "message"), BAD.values(), ids=BAD.keys())
def test_bad_nodes_are_refused_and_leave_nothing(
    store: SummaryDAGStore, session: Session, values: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidNode, match=message):
        store.insert_node(snapshot("s", 0, **values))
    session.commit()
    assert session.execute(text("select count(*) from mneme.messages")).scalar() == 0


def test_an_error_never_shows_the_content(store: SummaryDAGStore) -> None:
    secret = "my password is hunter2 " * 2000
    with pytest.raises(InvalidNode) as caught:
        store.insert_node(snapshot("s", 0, content=secret))
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "hunter2" not in repr(snapshot("s", 0, content=secret))


def test_parents_must_exist_in_the_same_session_one_level_below(store: SummaryDAGStore) -> None:
    mine, other = store.insert_node(snapshot("s", 0)), store.insert_node(snapshot("other", 0))
    level_two = fold(store, [mine])
    unknown = SummaryNode(session_id="s", level=1, span_start=1, span_end=10, content="x", id=uuid.uuid4())
    for parents in ([unknown], [mine, other], [mine, level_two], [mine, mine]):
        with pytest.raises(InvalidNode, match="each parent must exist, once, in the same session and one level below"):
            fold(store, parents, session_id="s", level=2, span_start=1, span_end=10)


def test_the_span_and_times_of_a_condensed_node_are_the_hull_of_its_parents(store: SummaryDAGStore) -> None:
    parents = [store.insert_node(snapshot("s", n)) for n in (0, 4)]
    with pytest.raises(InvalidNode, match="1 to 50"):
        fold(store, parents, span_end=60)
    with pytest.raises(InvalidNode, match="started_at and ended_at"):
        fold(store, parents, started_at=datetime.now(UTC))
    given = fold(store, parents, started_at=parents[0].started_at, ended_at=parents[1].ended_at)
    assert given.started_at == parents[0].started_at


@pytest.mark.parametrize(
    "strange",
    [
        "🚀 emoji 👩‍💻",
        "עברית \u200fמע العربية\u200e",
        "line\r\nbreak\ttab",
        "Zürich — naïve ﬁ",
        "'; drop table x; -- %s :name {} \\u0000",
    ],
)
def test_text_comes_back_as_it_was_written(store: SummaryDAGStore, strange: str) -> None:
    assert store.insert_node(snapshot("sé🚀", 0, content=strange)).content == strange


def test_nul_and_lone_surrogates_are_taken_out_and_the_rest_kept(store: SummaryDAGStore) -> None:
    assert store.insert_node(snapshot("s", 0, content="a\0b\ud800c\udfffd  ")).content == "abcd  "


def test_nodes_survive_the_process_that_wrote_them(engine: Engine, database_url: str, store: SummaryDAGStore) -> None:
    script = (
        "import sys; from sqlalchemy.orm import Session; from models import *\n"
        "from tests.support.snapshots import write\n"
        "engine = make_engine(sys.argv[1]); print(write(engine, 's', [0], content='Written elsewhere.')[0].id)"
    )
    url = database_url.replace("postgresql:", "postgresql+psycopg:")
    out = subprocess.run(
        [sys.executable, "-c", script, url], env=clean_environ({}), capture_output=True, text=True, check=True
    )
    node = store.get_node_by_id(out.stdout.strip())
    assert node is not None
    assert node.content == "Written elsewhere."


# ------------------------------------------------------------------------------------------------ mark_superseded


def test_superseding_finds_the_successor_by_its_edges_and_may_be_repeated(store: SummaryDAGStore) -> None:
    parents = [store.insert_node(snapshot("s", n)) for n in range(3)]
    node = fold(store, parents)
    ids = [p.id for p in parents if p.id]
    assert store.mark_superseded(ids[:1]) == 1
    assert store.mark_superseded([*ids, str(ids[0])]) == 2
    assert store.mark_superseded(ids) == 0
    assert store.mark_superseded(ids, by=node.id) == 0
    assert store.mark_superseded([]) == 0
    for parent in ids:
        found = store.get_node_by_id(parent)
        assert found is not None
        assert (found.superseded, found.superseded_by) == (True, node.id)


def test_superseding_refuses_what_would_not_be_true(store: SummaryDAGStore, session: Session) -> None:
    a, b, c = (store.insert_node(snapshot("s", n)) for n in range(3))
    of_a, of_ab = fold(store, [a]), fold(store, [a, b])
    assert a.id
    assert b.id
    assert c.id
    with pytest.raises(SupersedeError, match="2 nodes were made from all"):
        store.mark_superseded([a.id])
    with pytest.raises(SupersedeError, match="no node was made from all"):
        store.mark_superseded([c.id])
    with pytest.raises(SupersedeError, match="was not made from all"):
        store.mark_superseded([a.id, b.id], by=of_a.id)
    with pytest.raises(SupersedeError, match="does not exist"):
        store.mark_superseded([a.id, uuid.uuid4()], by=of_ab.id)
    with pytest.raises(SupersedeError, match="does not exist or is retired"):
        store.mark_superseded([a.id], by=uuid.uuid4())
    with pytest.raises(SupersedeError, match="'nonsense' is no node id"):
        store.mark_superseded(["nonsense"])
    assert store.mark_superseded([a.id], by=of_a.id) == 1
    with pytest.raises(SupersedeError, match=f"already superseded by {of_a.id}"):
        store.mark_superseded([a.id, b.id], by=of_ab.id)
    session.execute(
        text("update mneme.summary_nodes set retired_at = now(), retired_reason = 'restored' where id = :i"),
        {"i": of_ab.id},
    )
    with pytest.raises(SupersedeError, match="does not exist or is retired"):
        store.mark_superseded([b.id], by=of_ab.id)


def test_two_processes_superseding_the_same_nodes_by_two_successors(engine: Engine) -> None:
    """One of them wins, whole; the other is told so. In opposite orders, which must not deadlock."""
    parents = write(engine, "s", range(5))
    ids = [p.id for p in parents if p.id]
    with Session(engine) as session, session.begin():
        successors = [fold(SummaryDAGStore(session), parents), fold(SummaryDAGStore(session), parents)]
    barrier = threading.Barrier(2)
    results: list[object] = []

    def supersede(successor: SummaryNode, order: list[uuid.UUID]) -> None:
        with Session(engine) as session, session.begin():
            barrier.wait()
            try:
                results.append(SummaryDAGStore(session).mark_superseded(order, by=successor.id))
            except SupersedeError as error:
                results.append(error)

    threads = [
        threading.Thread(target=supersede, args=(successors[0], ids)),
        threading.Thread(target=supersede, args=(successors[1], ids[::-1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert 5 in results
    assert sum(isinstance(result, SupersedeError) for result in results) == 1
    with engine.connect() as connection:
        by = connection.execute(text("select distinct superseded_by from mneme.summary_nodes where level = 1")).all()
    assert len(by) == 1


# ------------------------------------------------------------------------------------------------ reading


def test_active_nodes_come_in_order_of_span_with_content_and_parents(store: SummaryDAGStore) -> None:
    parents = [store.insert_node(snapshot("s", n)) for n in (3, 1, 2)]
    node = fold(store, sorted(parents, key=lambda p: p.span_start))
    store.mark_superseded([p.id for p in parents if p.id])
    late = store.insert_node(snapshot("s", 0))
    store.insert_node(snapshot("other", 0))
    found = store.get_active_nodes("s")
    assert [n.id for n in found] == [late.id, node.id]
    assert [n.content for n in found] == [late.content, node.content]
    assert found[1].parent_node_ids == node.parent_node_ids
    assert store.get_active_nodes("unknown") == []
    # An id is never cleaned: that would read another session.
    for near in ("s\0", "\ud800s", " s"):
        assert store.get_active_nodes(near) == []
        assert store.get_latest_node(near) is None
        assert store.get_coverage_gaps(near) == []
    with pytest.raises(InvalidNode, match="must be text"):
        store.get_active_nodes(None)  # type: ignore[arg-type]


def test_returned_nodes_stay_readable_after_the_transaction(engine: Engine) -> None:
    written = write(engine, "s", [0])[0]
    assert written.content.startswith("Snapshot 0")


def test_the_latest_node_is_the_one_created_last_among_the_active(store: SummaryDAGStore, session: Session) -> None:
    assert store.get_latest_node("s") is None
    store.insert_node(snapshot("s", 5))
    session.commit()
    late = store.insert_node(snapshot("s", 1))
    session.commit()
    found = store.get_latest_node("s")
    assert found is not None
    assert found.id == late.id
    node = fold(store, [late])
    store.mark_superseded([late.id] if late.id else [])
    latest = store.get_latest_node("s")
    assert latest is not None
    assert latest.id == node.id


def test_a_node_by_id_may_be_superseded_and_a_message_is_none(store: SummaryDAGStore, session: Session) -> None:
    parent = store.insert_node(snapshot("s", 0))
    fold(store, [parent])
    store.mark_superseded([parent.id] if parent.id else [])
    found = store.get_node_by_id(str(parent.id))
    assert found is not None
    assert found.superseded
    message = session.execute(
        text("insert into mneme.messages (session_id, seq, role) values ('s', 1, 'user') returning id")
    ).scalar_one()
    assert store.get_node_by_id(message) is None
    assert store.get_node_by_id(uuid.uuid4()) is None
    for malformed in ("", "nonsense", "123", "\0", None, 7):
        assert store.get_node_by_id(malformed) is None  # type: ignore[arg-type]


def log(session: Session, session_id: str, numbers: list[int]) -> None:
    session.execute(text("insert into mneme.sessions (id) values (:s) on conflict do nothing"), {"s": session_id})
    for seq in numbers:
        message = session.execute(
            text("insert into mneme.messages (session_id, seq, role) values (:s, :n, 'user') returning id"),
            {"s": session_id, "n": seq},
        ).scalar_one()
        session.execute(
            text("insert into mneme.message_parts (message_id, part_index, part_type, content, token_estimate)"
                 " values (:m, 0, 'text', 'hi', 7), (:m, 1, 'tool', '', null)"),
            {"m": message},
        )  # fmt: skip


def test_gaps_at_head_middle_and_tail_and_inside_a_level_two_span(store: SummaryDAGStore, session: Session) -> None:
    log(session, "s", [*range(1, 31), 40, 41])
    log(session, "other", [1, 2, 3])
    a = store.insert_node(snapshot("s", 0, span_start=3, span_end=9))
    b = store.insert_node(snapshot("s", 1, span_start=12, span_end=20))
    expected = [
        MessageSpan(start_seq=1, end_seq=2, message_count=2, estimated_tokens=14),
        MessageSpan(start_seq=10, end_seq=11, message_count=2, estimated_tokens=14),
        MessageSpan(start_seq=21, end_seq=41, message_count=12, estimated_tokens=84),
    ]
    assert store.get_coverage_gaps("s") == expected
    # The level 2 node spans 3 to 20, and covers nothing of 10 and 11.
    fold(store, [a, b])
    store.mark_superseded([p.id for p in (a, b) if p.id])
    assert store.get_coverage_gaps("s") == expected


def test_gaps_of_a_session_without_snapshots_or_without_messages(store: SummaryDAGStore, session: Session) -> None:
    log(session, "s", [5, 6, 9])
    assert store.get_coverage_gaps("s") == [MessageSpan(start_seq=5, end_seq=9, message_count=3, estimated_tokens=21)]
    store.insert_node(snapshot("quiet", 0))
    assert store.get_coverage_gaps("quiet") == []
    assert store.get_coverage_gaps("unknown") == []
    store.insert_node(snapshot("s", 0, span_start=-(2**63) + 1, span_end=2**63 - 2))
    assert store.get_coverage_gaps("s") == []
