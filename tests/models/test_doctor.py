"""The doctor: each rule broken by hand and found; what the schema keeps, shown so; a healthy memory, clean."""

import threading
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from models import runs, transaction
from models.doctor import Finding, diagnose, examine, one_state
from models.doctor_rules import RULES, SchemaObject
from models.runs import Usage
from tests.support.doctoring import SETTINGS, bypass, fold, must_claim, small_memory
from tests.support.snapshots import write


@pytest.fixture
def ids(engine: Engine) -> dict[str, Any]:
    return small_memory(engine)


def broken(findings: list[Finding]) -> dict[str, tuple[str, ...]]:
    return {finding.rule.name: finding.first_ids for finding in findings if finding.violations}


# ------------------------------------------------------------------------------------------------ broken by hand

_FOLD_AGAIN = """
    set local session_replication_role = origin;
    select mneme.insert_summary_node(:unknown, 'app', 2, 1, 20, 'y', p_parent_ids => array[cast(:one as uuid), cast(:two as uuid)])"""
_SET_TEXT = """
    update mneme.message_parts set content = {content} where message_id = :{node} and part_index = 0;
    update mneme.summary_nodes set token_count = mneme.estimate_tokens({content}) where id = :{node}"""
_ADD_PART = """
    insert into mneme.message_parts (message_id, part_index, part_type, content, token_estimate) values (:waiting, 2, 'text', 'x', 1)"""
_DUE_AND_SWEPT = """
    set local session_replication_role = origin;
    select mneme.insert_summary_node(null, 'due', 1, g, g, 'x') from generate_series(1, 5) g;
    update mneme.summary_nodes set swept_at = now() where session_id = 'due'"""
_DEAD_RUN = """
    insert into mneme.compaction_runs (id, session_id, level, lease_expires_at)
        values (:unknown, 'other', 2, now() - interval '11 minutes')"""

# What breaks a rule, which rule that is, and whose id is told: a name of the small memory, or the id itself.
BREAKS = {
    "a successor that is not there": (
        "update mneme.summary_nodes set superseded_by = :unknown where id = :waiting",
        "superseded_has_successor", "waiting",
    ),
    "a successor that was not made from it": (
        "update mneme.summary_nodes set superseded_by = :folded where id = :waiting",
        "superseded_has_successor", "waiting",
    ),
    "folded a second time": (_FOLD_AGAIN, "folded_once", "unknown"),
    "covered, and not marked": (
        "update mneme.summary_nodes set superseded_by = null where id = :one", "parents_are_superseded", "one",
    ),
    "covered, and dismissed": (
        "update mneme.summary_nodes set superseded_by = null, dismissed_at = now(), dismissed_reason = 'declined' where id = :one",
        "parents_are_superseded", "one",
    ),
    "retired, and still a successor": (
        "update mneme.summary_nodes set retired_at = now(), retired_reason = 'restored' where id = :app",
        "retired_supersedes_nothing", "app",
    ),
    "an edge to nothing": (
        "insert into mneme.summary_edges values (:app, :unknown, 9)", "edges_join_nodes", "app",
    ),
    "an edge from nothing": (
        "insert into mneme.summary_edges values (:unknown, :one, 9)", "edges_join_nodes", "unknown",
    ),
    "a fold of nothing": (
        "delete from mneme.summary_edges where node_id = :app;"
        " update mneme.summary_nodes set superseded_by = null where id in (:one, :two)",
        "condensed_has_parents", "app",
    ),
    "a parent of another session": (
        "insert into mneme.summary_edges values (:app, :other, 9);"
        " update mneme.summary_nodes set superseded_by = :app where id = :other",
        "parents_are_one_level_below", "app",
    ),
    "a parent two levels below": (
        "update mneme.summary_nodes set level = 3 where id = :app", "parents_are_one_level_below", "app",
    ),
    "a span too wide": (
        "update mneme.summary_nodes set span_end = 21 where id = :app", "span_is_hull", "app",
    ),
    "a span too narrow": (
        "update mneme.summary_nodes set span_start = 2 where id = :app", "span_is_hull", "app",
    ),
    "times too wide": (
        "update mneme.summary_nodes set started_at = started_at - interval '1 s' where id = :app", "times_are_hull", "app",
    ),
    "no times": (
        "update mneme.summary_nodes set started_at = null where id = :app", "times_are_hull", "app",
    ),
    "a fold larger than its parents": (
        _SET_TEXT.format(content="repeat('large ', 5000)", node="folded"), "fold_is_smaller", "folded",
    ),
    "a fold of one that did not shrink": (
        "delete from mneme.summary_edges where parent_id = :two; delete from mneme.message_parts where message_id = :two;"
        " delete from mneme.summary_nodes where id = :two; delete from mneme.messages where id = :two;"
        + _SET_TEXT.format(content="'tiny'", node="one") + ";" + _SET_TEXT.format(content="'tiny'", node="app") + ";"
        " update mneme.summary_nodes set span_end = 10, ended_at = (select ended_at from mneme.summary_nodes where id = :one)"
        " where id = :app;"
        " insert into mneme.compaction_runs (id, session_id, level, state, lease_expires_at, finished_at, input_ids, node_id)"
        " values (:unknown, 'app', 2, 'succeeded', now(), now(), array[cast(:one as uuid)], :app);"
        " update mneme.summary_nodes set run_id = :unknown where id = :app",
        "fold_is_smaller", "app",
    ),
    "no message": ("delete from mneme.messages where id = :waiting", "node_has_message", "waiting"),
    "a message of another session": (
        "update mneme.messages set session_id = 'other' where id = :waiting", "node_has_message", "waiting",
    ),
    "a message that is no summary": (
        "update mneme.messages set seq = 1, is_summary = false where id = :waiting", "node_has_message", "waiting",
    ),
    "a message whose node is gone": (
        "delete from mneme.summary_nodes where id = :waiting", "message_has_node", "waiting",
    ),
    "no text": (
        "delete from mneme.message_parts where message_id = :waiting and part_index = 0", "node_has_parts", "waiting",
    ),
    "no compaction part": (
        "delete from mneme.message_parts where message_id = :waiting and part_index = 1", "node_has_parts", "waiting",
    ),
    "no parts": ("delete from mneme.message_parts where message_id = :waiting", "node_has_parts", "waiting"),
    "a part too many": (_ADD_PART, "node_has_parts", "waiting"),
    "parts of the wrong type": (
        "update mneme.message_parts set part_type = 'tool' where message_id = :waiting", "node_has_parts", "waiting",
    ),
    "no character": (_SET_TEXT.format(content="''", node="waiting"), "content_is_visible", "waiting"),
    "nothing to be seen": (
        _SET_TEXT.format(content="repeat(U&'\\200b ', 100)", node="waiting"), "content_is_visible", "waiting",
    ),
    "a huge text": (_SET_TEXT.format(content="repeat('x', 32769)", node="waiting"), "content_is_visible", "waiting"),
    "a wrong token count": (
        "update mneme.summary_nodes set token_count = token_count + 1 where id = :waiting", "tokens_are_estimated", "waiting",
    ),
    "a run whose node is gone": (
        "update mneme.compaction_runs set node_id = :unknown where id = :run;"
        " update mneme.summary_nodes set run_id = null where id = :folded",
        "run_has_node", "run",
    ),
    "a run whose node does not name it": (
        "update mneme.summary_nodes set run_id = null where id = :folded", "run_has_node", "run",
    ),
    "a run of another level": ("update mneme.compaction_runs set level = 3 where id = :run", "run_has_node", "run"),
    "a run of another session": (
        "update mneme.compaction_runs set session_id = 'other' where id = :run", "run_has_node", "run",
    ),
    "a node of another's run": ("update mneme.summary_nodes set run_id = :run where id = :app", "node_has_run", "app"),
    "a node of a run that is gone": (
        "update mneme.summary_nodes set run_id = :unknown where id = :app", "node_has_run", "app",
    ),
    "an input that was not covered": (
        "update mneme.compaction_runs set input_ids = input_ids || cast(:waiting as uuid) where id = :run",
        "inputs_are_parents", "run",
    ),
    "a parent that was no input": (
        "update mneme.compaction_runs set input_ids = input_ids[2\\:] where id = :run", "inputs_are_parents", "run",
    ),
    "a lease long dead": (_DEAD_RUN, "leases_are_alive", "unknown"),
    "due, and looked at by nobody": (_DUE_AND_SWEPT, "due_is_seen", "due"),
}  # fmt: skip


@pytest.mark.parametrize(("statements", "rule", "violator"), BREAKS.values(), ids=BREAKS.keys())
def test_a_broken_rule_is_found_and_no_other(
    engine: Engine, ids: dict[str, Any], statements: str, rule: str, violator: str
) -> None:
    assert broken(diagnose(engine, SETTINGS)) == {}
    bypass(engine, statements, ids)
    assert broken(diagnose(engine, SETTINGS)) == {rule: (str(ids.get(violator, violator)),)}


# A snapshot with parents has them on a level of its own or above, and a cycle is never all of one level below another.
ENTANGLED = {
    "a snapshot made from a node": (
        "update mneme.summary_nodes set retired_at = now(), retired_reason = 'restored' where id = :waiting;"
        "insert into mneme.summary_edges values (:waiting, :old, 0)",
        {"leaf_has_no_parents": "waiting", "parents_are_one_level_below": "waiting"},
    ),
    "a node made from itself": (
        "insert into mneme.summary_edges values (:app, :app, 9); update mneme.summary_nodes set superseded_by = :app where id = :app",
        {"no_cycle": "app", "parents_are_one_level_below": "app"},
    ),
    "a node made from what was made from it": (
        "update mneme.summary_nodes set level = 3 where id = :one; insert into mneme.summary_edges values (:one, :app, 0);"
        " update mneme.summary_nodes set superseded_by = :one where id = :app;"
        " update mneme.summary_nodes set span_end = 20, ended_at = (select ended_at from mneme.summary_nodes where id = :two)"
        " where id = :one;"
        + _SET_TEXT.format(content="'.'", node="one")
        + ";"
        + _SET_TEXT.format(content="repeat('x', 40)", node="app"),
        {"no_cycle": "app", "parents_are_one_level_below": "app"},
    ),
}


@pytest.mark.parametrize(("statements", "found"), ENTANGLED.values(), ids=ENTANGLED.keys())
def test_what_breaks_two_rules_at_once(
    engine: Engine, ids: dict[str, Any], statements: str, found: dict[str, str]
) -> None:
    bypass(engine, statements, ids)
    expected = {rule: (str(ids[violator]),) for rule, violator in found.items()}
    assert broken(diagnose(engine, SETTINGS)) == expected


def test_every_rule_on_the_data_is_broken_above() -> None:
    broken_here = {rule for _, rule, _ in BREAKS.values()}.union(*(found for _, found in ENTANGLED.values()))
    assert broken_here == {rule.name for rule in RULES if rule.statement is not None}


def test_names_of_rules_are_unique_and_each_is_kept_somehow() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.statement is not None or rule.enforced_by for rule in RULES)


def test_what_an_app_writes_by_hand_may_be_as_long_as_it_likes(engine: Engine, ids: dict[str, Any]) -> None:
    bypass(engine, _SET_TEXT.format(content="repeat('large ', 5000)", node="app"), ids)
    assert broken(diagnose(engine, SETTINGS)) == {}


def test_of_many_violations_all_are_counted_and_the_first_ids_told(engine: Engine) -> None:
    nodes = write(engine, "s", range(4)) + write(engine, "t", range(4))
    bypass(engine, "update mneme.summary_nodes set token_count = 1", {})
    found = next(f for f in diagnose(engine, SETTINGS) if f.rule.name == "tokens_are_estimated")
    assert (found.status, found.violations) == ("broken", 8)
    assert found.first_ids == tuple(sorted(str(node.id) for node in nodes)[:5])


def test_a_table_full_of_nonsense_does_not_keep_the_search_for_cycles_going(engine: Engine) -> None:
    write(engine, "s", range(60))
    bypass(engine, """
        insert into mneme.summary_edges select a.id, b.id, row_number() over (partition by a.id)
          from mneme.summary_nodes a, mneme.summary_nodes b where a.id <> b.id
    """, {})  # fmt: skip
    found = {finding.rule.name: finding.violations for finding in diagnose(engine, SETTINGS)}
    assert found["leaf_has_no_parents"] == 60
    # The first thousand suspect edges come from 17 nodes.
    assert found["no_cycle"] == 17


# ------------------------------------------------------------------------------------------------ by the schema

KEPT_BY_THE_SCHEMA = {
    "superseded_alone": "update mneme.summary_nodes set dismissed_at = now(), dismissed_reason = 'declined' where id = :one",
    "flag_is_successor": "update mneme.summary_nodes set superseded = true where id = :waiting",
    "one_snapshot_per_span": "update mneme.summary_nodes set span_start = 51, span_end = 60 where id = :old",
    "dismissed_for_a_reason": "update mneme.summary_nodes set dismissed_at = now() where id = :waiting",
    "ranges_in_order": "update mneme.summary_nodes set span_start = span_end + 1 where id = :waiting",
    "seq_null_for_summaries": "update mneme.messages set seq = 9 where id = :waiting",
    "one_running": "insert into mneme.compaction_runs (session_id, level, lease_expires_at) values ('s', 2, now()), ('s', 2, now())",
    "finished_unless_running": "update mneme.compaction_runs set node_id = null where id = :run",
}


@pytest.mark.parametrize(("rule", "statement"), KEPT_BY_THE_SCHEMA.items(), ids=KEPT_BY_THE_SCHEMA.keys())
def test_what_the_schema_keeps_cannot_be_broken_and_is_shown_so(
    engine: Engine, ids: dict[str, Any], rule: str, statement: str
) -> None:
    with pytest.raises(DBAPIError):
        bypass(engine, statement, ids)
    found = next(finding for finding in diagnose(engine, SETTINGS) if finding.rule.name == rule)
    assert (found.status, found.violations, found.first_ids, found.missing) == ("by the schema", 0, (), ())


def test_every_rule_of_the_schema_is_tried_above() -> None:
    shown = {rule.name for rule in RULES if rule.statement is None}
    assert shown == set(KEPT_BY_THE_SCHEMA) | {"guards_are_on"}


OBJECTS = [(rule.name, wanted) for rule in RULES for wanted in rule.enforced_by]
_TAKE_AWAY = {
    "constraint": "alter table mneme.{0} drop constraint {1}",
    "unique index": "drop index mneme.{1}",
    "generated column": "alter table mneme.{0} alter {1} drop expression",
    "trigger": "alter table mneme.{0} disable trigger {1}",
}


@pytest.mark.parametrize(("rule", "wanted"), OBJECTS, ids=[wanted.name for _, wanted in OBJECTS])
def test_what_the_schema_lacks_is_a_violation(engine: Engine, rule: str, wanted: SchemaObject) -> None:
    with engine.connect() as connection:  # rolled back at the end
        connection.execute(text(_TAKE_AWAY[wanted.kind].format(wanted.table_name, wanted.name)))
        found = [finding for finding in examine(connection, SETTINGS) if finding.violations]
    assert [(f.rule.name, f.status, f.violations, f.missing) for f in found] == [(rule, "broken", 1, (wanted,))]


def test_a_constraint_that_is_not_valid_or_not_in_force_is_a_violation(engine: Engine) -> None:
    with engine.connect() as connection:
        name = "summary_nodes_superseded_alone"
        connection.execute(text(f"alter table mneme.summary_nodes drop constraint {name}"))
        connection.execute(text(f"alter table mneme.summary_nodes add constraint {name} check (true) not valid"))
        assert set(broken(examine(connection, SETTINGS))) == {"superseded_alone"}
    with engine.connect() as connection:
        connection.execute(text("alter table mneme.summary_edges disable trigger all"))
        found = set(broken(examine(connection, SETTINGS)))
    assert found == {"superseded_has_successor", "edges_join_nodes", "guards_are_on"}


# ------------------------------------------------------------------------------------------------ a healthy memory


def test_a_healthy_memory_is_clean(engine: Engine, ids: dict[str, Any]) -> None:
    for start in range(0, 25, 5):  # two levels of folds
        write(engine, "deep", range(start, start + 5))
        fold(engine, "deep")
    fold(engine, "deep")
    write(engine, "declined", range(5))
    declined = must_claim(engine, "declined")
    with transaction(engine) as connection:
        runs.close_declined(connection, declined, Usage())
    write(engine, "failed", range(6))
    failed = must_claim(engine, "failed")
    with transaction(engine) as connection:
        runs.close_failed(connection, failed, Usage(), kind="transient", error="x", retry_seconds=60)
    write(engine, "running", range(20))
    must_claim(engine, "running")
    write(engine, "paused", range(5))
    write(engine, "tiny", range(5), content="so little cannot shrink")
    fold(engine, "tiny")
    with engine.begin() as connection:
        for statement in (
            "update mneme.summary_nodes set swept_at = now() where session_id in ('failed', 'running', 'paused')",
            "update mneme.sessions set paused_at = now() where id = 'paused'",
            # Undone: the fold is retired and keeps its edges, what it covered is back.
            "update mneme.summary_nodes set superseded_by = null, dismissed_at = now(), dismissed_reason = 'restored'"
            " where superseded_by = :app",
            "update mneme.summary_nodes set retired_at = now(), retired_reason = 'restored' where id = :app",
            "update mneme.summary_nodes set compaction_level = 3, degraded = true where id = :folded",
            "insert into mneme.messages (session_id, seq, role) values ('s', 1, 'user')",
            "insert into mneme.message_parts (message_id, part_index, part_type, content)"
            " select id, 0, 'text', ' ' from mneme.messages where seq = 1",
        ):
            connection.execute(text(statement), ids if ":" in statement else {})
    assert broken(diagnose(engine, SETTINGS)) == {}


def test_due_is_seen_by_the_thresholds_of_the_last_full_count(engine: Engine) -> None:
    bypass(engine, _DUE_AND_SWEPT, {})
    bypass(engine, "update mneme.sweep_state set threshold = 6, max_level = 3", {})
    assert broken(diagnose(engine, SETTINGS)) == {}
    bypass(engine, "update mneme.sweep_state set threshold = 5", {})
    assert broken(diagnose(engine, SETTINGS)) == {"due_is_seen": ("due",)}


@pytest.mark.parametrize(
    "leads_back",
    [
        "update mneme.summary_nodes set swept_at = null where span_start = 3",
        "insert into mneme.compaction_runs (session_id, level, lease_expires_at) values ('due', 2, now())",
        "insert into mneme.compaction_runs (session_id, level, lease_expires_at, state, finished_at, retry_at)"
        " values ('due', 3, now(), 'failed', now(), now() + interval '1 h')",
        "update mneme.sessions set paused_at = now()",
    ],
)
def test_what_leads_the_sweep_to_a_due_session(engine: Engine, leads_back: str) -> None:
    bypass(engine, f"{_DUE_AND_SWEPT}; {leads_back}", {})
    assert broken(diagnose(engine, SETTINGS)) == {}


# ------------------------------------------------------------------------------------------------ one state


def test_one_state_is_read_and_nothing_can_be_written(engine: Engine) -> None:
    with one_state(engine) as connection:
        shown = [
            connection.execute(text(f"show {name}")).scalar_one()
            for name in ("transaction_isolation", "transaction_read_only", "statement_timeout", "lock_timeout")
        ]
        before = connection.execute(text("select count(*) from mneme.summary_nodes")).scalar_one()
        write(engine, "s", [0])
        assert connection.execute(text("select count(*) from mneme.summary_nodes")).scalar_one() == before
    assert shown == ["repeatable read", "on", "10min", "2s"]
    with engine.connect() as connection:  # the same connection of the pool, as it was
        assert connection.execute(text("show transaction_isolation")).scalar_one() == "read committed"
        assert connection.execute(text("show transaction_read_only")).scalar_one() == "off"
        assert connection.execute(text("show work_mem")).scalar_one() == "4MB"


def test_a_memory_that_is_being_folded_is_clean_at_any_moment(engine: Engine) -> None:
    stop = threading.Event()

    def work() -> None:
        start = 0
        while not stop.is_set():
            write(engine, "s", range(start, start + 5))
            fold(engine, "s")
            start += 5

    worker = threading.Thread(target=work)
    worker.start()
    try:
        findings = [broken(diagnose(engine, SETTINGS)) for _ in range(10)]
    finally:
        stop.set()
        worker.join(30)
    assert findings == [{}] * 10
