"""The rules that the rows must keep, whoever wrote them: what must hold, how it is seen, and what to do where it does not."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from sqlalchemy import TextClause

from models import doctor_sql


class SchemaObject(NamedTuple):
    """Something in the schema ``mneme`` that keeps a rule; whether it is there and in force, the catalogue says."""

    kind: Literal["constraint", "unique index", "generated column", "trigger"]
    table_name: str
    name: str

    def __str__(self) -> str:
        """Name it as a sentence does."""
        return f"{self.kind} {self.name} of {self.table_name}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        name: by which programs know it.
        must_hold: one sentence.
        ids_of: whose ids ``statement`` returns.
        statement: finds what breaks the rule; None where ``enforced_by`` makes that impossible.
        enforced_by: what in the schema keeps the rule.
        advice: what it means when the rule is broken, and what to do.
    """

    name: str
    must_hold: str
    advice: str
    ids_of: Literal["node", "run", "session", "message"] = "node"
    statement: TextClause | None = None
    enforced_by: tuple[SchemaObject, ...] = ()


def _constraint(table_name: str, name: str) -> SchemaObject:
    return SchemaObject("constraint", table_name, name)


_MIGRATE = "The schema was changed by hand: put the object back as the migration makes it, then look again."
_NOT_OURS = "Written by something other than mneme, or restored in part"
_NODES, _EDGES, _RUNS = "summary_nodes", "summary_edges", "compaction_runs"

_COVERAGE = (
    Rule(
        name="superseded_has_successor",
        must_hold="a superseded node was folded into the node that it names",
        advice="Its memory is hidden and nothing stands for it: set its superseded_by to null and it waits again.",
        statement=doctor_sql.SUPERSEDED_HAS_SUCCESSOR,
        enforced_by=(_constraint(_NODES, "summary_nodes_successor_was_made_from_it"),),
    ),
    Rule(
        name="folded_once",
        must_hold="a node in memory was made from no node that another one supersedes",
        advice="The same memory is told twice: retire this node if it supersedes nothing, else read both and undo one fold.",
        statement=doctor_sql.FOLDED_ONCE,
    ),
    Rule(
        name="parents_are_superseded",
        must_hold="what a node in memory was made from is superseded",
        advice="It would be folded again: set its superseded_by to the node that was made from it.",
        statement=doctor_sql.PARENTS_ARE_SUPERSEDED,
    ),
    Rule(
        name="retired_supersedes_nothing",
        must_hold="a retired node supersedes nothing",
        advice="What it supersedes is out of memory with it: set superseded_by of those nodes to null.",
        statement=doctor_sql.RETIRED_SUPERSEDES_NOTHING,
    ),
    Rule(
        name="superseded_alone",
        must_hold="a superseded node is neither dismissed nor retired",
        advice=_MIGRATE,
        enforced_by=(_constraint(_NODES, "summary_nodes_superseded_alone"),),
    ),
    Rule(
        name="flag_is_successor",
        must_hold="the flag superseded says whether there is a successor",
        advice=_MIGRATE,
        enforced_by=(SchemaObject("generated column", _NODES, "superseded"),),
    ),
    Rule(
        name="one_snapshot_per_span",
        must_hold="a session has one snapshot of a span",
        advice=_MIGRATE,
        enforced_by=(SchemaObject("unique index", _NODES, "summary_nodes_one_leaf_per_span"),),
    ),
    Rule(
        name="dismissed_for_a_reason",
        must_hold="what is dismissed or retired says why",
        advice=_MIGRATE,
        enforced_by=(
            _constraint(_NODES, "summary_nodes_dismissed_with_reason"),
            _constraint(_NODES, "summary_nodes_retired_with_reason"),
        ),
    ),
)

_SHAPE = (
    Rule(
        name="edges_join_nodes",
        must_hold="both ends of an edge exist",
        advice=f"{_NOT_OURS}: bring the missing node back from a backup; without it the fold cannot be undone.",
        statement=doctor_sql.EDGES_JOIN_NODES,
        enforced_by=(
            _constraint(_EDGES, "summary_edges_node_id_fkey"),
            _constraint(_EDGES, "summary_edges_parent_id_fkey"),
        ),
    ),
    Rule(
        name="condensed_has_parents",
        must_hold="a node above level 1 was made from something",
        advice=f"{_NOT_OURS}: bring its edges back from a backup, or retire it.",
        statement=doctor_sql.CONDENSED_HAS_PARENTS,
    ),
    Rule(
        name="leaf_has_no_parents",
        must_hold="a node of level 1 was made from no node",
        advice=f"{_NOT_OURS}: delete the edge if the snapshot is one, or correct its level.",
        statement=doctor_sql.LEAF_HAS_NO_PARENTS,
    ),
    Rule(
        name="parents_are_one_level_below",
        must_hold="a node was made from nodes of its own session, one level below",
        advice="Two conversations may have been mixed: read the node, and retire it if so.",
        statement=doctor_sql.PARENTS_ARE_ONE_LEVEL_BELOW,
    ),
    Rule(
        name="no_cycle",
        must_hold="no node was made from itself, by whatever detour",
        advice=f"{_NOT_OURS}: delete the edge that leads up.",
        statement=doctor_sql.NO_CYCLE,
    ),
    Rule(
        name="span_is_hull",
        must_hold="the span of a fold is that of its parents together",
        advice="It claims messages that it was not made from, or leaves some out: set its span to that of its parents.",
        statement=doctor_sql.SPAN_IS_HULL,
    ),
    Rule(
        name="times_are_hull",
        must_hold="the times of a fold are those of its parents together",
        advice="It is dated wrongly: set its times to those of its parents.",
        statement=doctor_sql.TIMES_ARE_HULL,
    ),
    Rule(
        name="ranges_in_order",
        must_hold="spans and times do not end before they start",
        advice=_MIGRATE,
        enforced_by=(
            _constraint(_NODES, "summary_nodes_span_in_order"),
            _constraint(_NODES, "summary_nodes_times_in_order"),
        ),
    ),
    Rule(
        name="fold_is_smaller",
        must_hold="a fold by a run has fewer tokens than its parents together, or at most 200",
        advice="It saves nothing, and was checked before: its text was changed afterwards. Undo the fold.",
        statement=doctor_sql.FOLD_IS_SMALLER,
    ),
)

_TEXTS = (
    Rule(
        name="node_has_message",
        must_hold="a node has a summary message of its session with its id",
        advice=f"{_NOT_OURS}: bring the message back from a backup.",
        statement=doctor_sql.NODE_HAS_MESSAGE,
        enforced_by=(_constraint(_NODES, "summary_nodes_id_fkey"),),
    ),
    Rule(
        name="message_has_node",
        must_hold="a summary message has its node",
        advice=f"{_NOT_OURS}: bring the node back from a backup, or delete the message and its parts.",
        ids_of="message",
        statement=doctor_sql.MESSAGE_HAS_NODE,
    ),
    Rule(
        name="seq_null_for_summaries",
        must_hold="exactly the summary messages have no seq",
        advice=_MIGRATE,
        ids_of="message",
        enforced_by=(_constraint("messages", "messages_seq_null_exactly_for_summaries"),),
    ),
    Rule(
        name="node_has_parts",
        must_hold="the message of a node has a text part, a compaction part and no other",
        advice="Without its text part it is missing from memory: bring the parts back from a backup.",
        statement=doctor_sql.NODE_HAS_PARTS,
        enforced_by=(_constraint("message_parts", "message_parts_message_id_fkey"),),
    ),
    Rule(
        name="content_is_visible",
        must_hold="the text of a node can be seen, and has at most 32,768 bytes",
        advice=f"{_NOT_OURS}: bring its text back from a backup, or undo the fold.",
        statement=doctor_sql.CONTENT_IS_VISIBLE,
    ),
    Rule(
        name="tokens_are_estimated",
        must_hold="the token count of an active node is the estimate of its text, as of when it was written",
        advice="Budgets go wrong by it: set token_count to mneme.estimate_tokens of its text.",
        statement=doctor_sql.TOKENS_ARE_ESTIMATED,
    ),
)

_LIFE = (
    Rule(
        name="one_running",
        must_hold="a session and level has at most one running run",
        advice=_MIGRATE,
        ids_of="run",
        enforced_by=(SchemaObject("unique index", _RUNS, "compaction_runs_one_running"),),
    ),
    Rule(
        name="finished_unless_running",
        must_hold="exactly the running runs have not finished, and exactly those that succeeded name a node",
        advice=_MIGRATE,
        ids_of="run",
        enforced_by=(
            _constraint(_RUNS, "compaction_runs_finished_unless_running"),
            _constraint(_RUNS, "compaction_runs_node_when_succeeded"),
        ),
    ),
    Rule(
        name="leases_are_alive",
        must_hold="no run is running whose lease passed long ago",
        advice="Nothing sweeps: see that one `celery -A worker beat` and a worker are running.",
        ids_of="run",
        statement=doctor_sql.LEASES_ARE_ALIVE,
    ),
    Rule(
        name="run_has_node",
        must_hold="a run that succeeded has its node, of its session and level, which names it",
        advice="The fold that it records is not there, or is another's: read both, and undo the fold in doubt.",
        ids_of="run",
        statement=doctor_sql.RUN_HAS_NODE,
        enforced_by=(_constraint(_RUNS, "compaction_runs_node_id_fkey"),),
    ),
    Rule(
        name="node_has_run",
        must_hold="the run that a node names made it",
        advice="It was written without right to, by a run that did not succeed: read it, and undo the fold in doubt.",
        statement=doctor_sql.NODE_HAS_RUN,
        enforced_by=(_constraint(_NODES, "summary_nodes_run"),),
    ),
    Rule(
        name="inputs_are_parents",
        must_hold="a run that succeeded covered what its model was shown, all of it and nothing else",
        advice="Memory may be covered that is in no summary: undo the fold that the run made.",
        ids_of="run",
        statement=doctor_sql.INPUTS_ARE_PARENTS,
    ),
    Rule(
        name="due_is_seen",
        must_hold="what is due is held by a run, or lies where the sweep looks",
        advice="Nothing leads to it before the next full count: enqueue the session, or set swept_at of its nodes to null.",
        ids_of="session",
        statement=doctor_sql.DUE_IS_SEEN,
    ),
    Rule(
        name="guards_are_on",
        must_hold="the triggers that refuse wrong rows are there and enabled",
        advice="Wrong rows are no longer refused: `alter table ... enable trigger all`; what is gone, put back.",
        enforced_by=(
            SchemaObject("trigger", "messages", "messages_append_only"),
            SchemaObject("trigger", "message_parts", "parts_append_only"),
            SchemaObject("trigger", "message_parts", "parts_checked"),
            SchemaObject("trigger", _EDGES, "edges_immutable"),
            SchemaObject("trigger", _EDGES, "edges_checked"),
            SchemaObject("trigger", "sessions", "sessions_resumed"),
            SchemaObject("trigger", _NODES, "nodes_checked"),
            SchemaObject("trigger", _NODES, "nodes_successor_checked"),
            SchemaObject("trigger", _NODES, "nodes_retired_checked"),
        ),
    ),
)

RULES = (*_COVERAGE, *_SHAPE, *_TEXTS, *_LIFE)
