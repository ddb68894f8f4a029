"""The store and the run protocol, driven at random on a real Postgres, and compared after each step with a plain model.

``MNEME_TEST_EXAMPLES`` makes it go on for longer.
"""

import os
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session as OrmSession

from models import NodeExists, SummaryDAGStore, SummaryNode, runs, transaction
from models.claims import InputBudget, Reviewed, Skip, claim
from models.runs import Claim, Fold, LostLease, Usage
from models.settings import MnemeSettings, ScheduleSettings
from models.sweeping import expire_leases, sweep_once
from tests.models.memory_model import MAX_CRASHES, MAX_LEVEL, MOST, THRESHOLD, Node, Retry, Run, Session
from tests.models.test_claims import SERVER

EXAMPLES = int(os.environ.get("MNEME_TEST_EXAMPLES", "30"))
SETTINGS = MnemeSettings(
    l2_snapshot_threshold=THRESHOLD, l2_max_snapshots=MOST, max_crashes=MAX_CRASHES, max_level=MAX_LEVEL
)
SCHEDULES = ScheduleSettings(grace_seconds=0, sweep_batch=100_000)
SESSIONS = st.sampled_from(["s", "t"])
NUMBERS = st.integers(0, 24)
WHICH = st.integers(0, 5)


def text_of(session_id: str, number: int) -> str:
    return f"Snapshot {number} of {session_id}."


class Protocol(RuleBasedStateMachine):
    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.model = {"s": Session(), "t": Session()}
        self.claims: list[tuple[str, Claim, Run]] = []
        self.looker = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    @initialize()
    def start_with_nothing(self) -> None:
        self._sql(
            "truncate mneme.sessions, mneme.messages, mneme.message_parts, mneme.summary_nodes, mneme.summary_edges,"
            " mneme.compaction_runs, mneme.breakers"
        )

    def _some(self, what: Callable[[Run], bool]) -> bool:
        return any(what(run) for model in self.model.values() for run in model.runs)

    def teardown(self) -> None:
        self.looker.close()

    def _sql(self, statement: str, **parameters: object) -> Any:
        return self.looker.execute(text(statement), parameters)

    # -------------------------------------------------------------------------------------------- writing

    @rule(session_id=SESSIONS, numbers=st.lists(NUMBERS, min_size=3, max_size=7, unique=True))
    def write_several(self, session_id: str, numbers: list[int]) -> None:
        """Any numbers in any order: some late, some repeated."""
        for number in numbers:
            self.write(session_id, number, True, False)

    @rule(session_id=SESSIONS, number=NUMBERS, by_sql=st.booleans(), other=st.booleans())
    def write(self, session_id: str, number: int, by_sql: bool, other: bool) -> None:
        """One, repeated perhaps, or with other content than is there."""
        model, start = self.model[session_id], number * 10 + 1
        content = text_of(session_id, number) + (" Or not." if other else "")
        there = next((n for n in model.nodes.values() if n.level == 1 and n.start == start), None)
        written = (self._write_by_sql if by_sql else self._write_by_store)(session_id, start, content)
        if there is None:
            assert written is not None
            model.nodes[written] = Node(written, 1, start, start + 9, content)
        elif by_sql and there.content == content:
            assert written == there.id
        else:
            assert written is None

    def _write_by_sql(self, session_id: str, start: int, content: str) -> Any:
        try:
            return self._sql(
                "select mneme.write_l1_snapshot(:s, :a, :b, :c)", s=session_id, a=start, b=start + 9, c=content
            ).scalar_one()
        except Exception as error:
            if "already covered" in str(error):
                return None
            raise

    def _write_by_store(self, session_id: str, start: int, content: str) -> Any:
        node = SummaryNode(session_id=session_id, level=1, span_start=start, span_end=start + 9, content=content)
        try:
            with OrmSession(self.engine) as session, session.begin():
                return SummaryDAGStore(session).insert_node(node, id_generator=uuid4).id
        except NodeExists:
            return None

    # -------------------------------------------------------------------------------------------- the protocol

    @precondition(lambda self: any(model.due_level() for model in self.model.values()))
    @rule(session_id=SESSIONS, dies=st.booleans())
    def claim_as_a_worker_that_may_die(self, session_id: str, dies: bool) -> None:
        """The crash is the way to halved batches and to dismissal: five rules in a row would seldom come about."""
        held = len(self.claims)
        self.claim(session_id)
        if dies and len(self.claims) > held:
            self.a_lease_passes(session_id)

    @rule(session_id=SESSIONS)
    def claim(self, session_id: str) -> None:
        with transaction(self.engine) as connection:
            counted = runs.count(connection, session_id, SETTINGS)
        level = self.model[session_id].due_level()
        assert (counted.due, counted.level) == (level is not None, level or 2)
        assert counted.uncovered == min(MOST + 1, len(self.model[session_id].waiting(counted.level - 1)))
        outcome, run = self.model[session_id].claim()
        if outcome == "below_threshold":
            return
        claimed = claim(self.engine, counted, SETTINGS, InputBudget(10_000, 10), worker="w", server=SERVER)
        if isinstance(claimed, Skip):
            assert (claimed.outcome, claimed.level) == (outcome, level)
            return
        assert run is not None
        run.id = claimed.run_id
        if isinstance(claimed, Reviewed):
            assert (claimed.reason, "crashes") == (outcome, "crashes")
            return
        assert outcome == "claimed"
        assert (claimed.input_ids, claimed.attempt) == (run.inputs, run.attempt)
        self.claims.append((session_id, claimed, run))

    def _take(self, which: int) -> tuple[Session, Claim, Run]:
        """Give up one of the claims that somebody holds, robbed or not, to be ended."""
        session_id, claimed, run = self.claims.pop(which % len(self.claims))
        return self.model[session_id], claimed, run

    def _end(self, claimed: Claim, write: Any) -> Any:
        """End a run as the job does: in one transaction, with a count; None when the lease was lost."""
        try:
            with transaction(self.engine) as connection:
                ended = write(connection)
                if ended is not False:
                    runs.count_again(connection, claimed.session_id, claimed.run_id, SETTINGS)
                return ended
        except LostLease:
            return None

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def commit(self, which: int) -> None:
        model, claimed, run = self._take(which)
        fold = Fold(f"Made by {claimed.run_id}.", "m", "p")
        node_id = self._end(claimed, lambda c: runs.commit_fold(c, claimed, fold, Usage(1, 2, 3)))
        assert model.commit(run, node_id, fold.content) == (node_id is not None)

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def decline(self, which: int) -> None:
        model, claimed, run = self._take(which)
        ended = self._end(claimed, lambda c: runs.close_declined(c, claimed, Usage()) or True)
        assert model.decline(run) == (ended is not None)

    @precondition(lambda self: self.claims)
    @rule(
        which=WHICH,
        kind=st.sampled_from(["transient", "content", "configuration"]),
        retry=st.sampled_from(["now", "later"]),
    )
    def fail(self, which: int, kind: str, retry: Retry) -> None:
        model, claimed, run = self._take(which)
        seconds = 0.0 if retry == "now" else 3600.0

        def write(connection: Any) -> bool:
            runs.close_failed(connection, claimed, Usage(), kind=kind, error="x", retry_seconds=seconds)
            return True

        assert model.fail(run, kind, retry) == (self._end(claimed, write) is not None)

    @precondition(lambda self: self.claims)
    @rule(which=WHICH)
    def release(self, which: int) -> None:
        model, claimed, run = self._take(which)
        released = self._end(claimed, lambda c: runs.close_released(c, claimed.run_id, Usage()))
        assert model.release(run) == released

    @precondition(lambda self: self._some(lambda run: run.state == "running" and not run.lease_passed))
    @rule(session_id=SESSIONS)
    def a_lease_passes(self, session_id: str) -> None:
        self._sql(
            "update mneme.compaction_runs set lease_expires_at = clock_timestamp() - interval '1 s'"
            " where session_id = :s and state = 'running'", s=session_id,
        )  # fmt: skip
        for run in self.model[session_id].runs:
            run.lease_passed = run.lease_passed or run.state == "running"

    @precondition(lambda self: self._some(lambda run: run.retry == "later"))
    @rule(session_id=SESSIONS)
    def a_wait_is_over(self, session_id: str) -> None:
        self._sql(
            "update mneme.compaction_runs set retry_at = clock_timestamp() where session_id = :s and retry_at is not null",
            s=session_id,
        )
        for run in self.model[session_id].runs:
            run.retry = run.retry and "now"

    @precondition(lambda self: self._some(lambda run: True))
    @rule(session_id=SESSIONS)
    def pause_or_resume(self, session_id: str) -> None:
        model = self.model[session_id]
        changed = self._sql(
            "update mneme.sessions set paused_at = case when paused_at is null then now() end where id = :s",
            s=session_id,
        )
        model.paused = not model.paused if changed.rowcount else False

    # -------------------------------------------------------------------------------------------- sweeping

    @precondition(lambda self: self._some(lambda run: run.state == "running" and run.lease_passed))
    @rule()
    def sweep_dead_leases(self) -> None:
        with transaction(self.engine) as connection:
            expired = expire_leases(connection, 1000)
        assert expired == sum(model.expire() for model in self.model.values())

    @rule()
    def sweep(self) -> None:
        """Leases first, as every sweep does. What was enqueued lately is forgotten: each sweep sees everything."""
        self.sweep_dead_leases()
        self._sql("update mneme.sessions set enqueued_at = null")
        with transaction(self.engine) as connection:
            swept = sweep_once(connection, SETTINGS, SCHEDULES, SERVER, room=1000)
        assert {taken.session_id for taken in swept.taken} == {s for s, model in self.model.items() if model.sweep()}

    # -------------------------------------------------------------------------------------------- what must hold

    @invariant()
    def the_rows_are_those_of_the_model(self) -> None:
        for session_id, model in self.model.items():
            assert self._nodes(session_id) == sorted(
                (n.start, n.level, n.id, n.end, n.content, n.superseded_by, n.dismissed, model.edges.get(n.id, []))
                for n in model.nodes.values()
            )
            assert self._runs(session_id) == [
                (r.id, r.level, r.state, r.attempt, r.content_failures, r.crashes, r.inputs, r.retry, r.node)
                for r in model.runs
            ]

    def _nodes(self, session_id: str) -> list[Any]:
        rows = self._sql(
            "select n.span_start, n.level, n.id, n.span_end, p.content, n.superseded_by, n.dismissed_reason,"
            " array(select e.parent_id from mneme.summary_edges e where e.node_id = n.id order by e.ordinal) as parents"
            " from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0"
            " where n.session_id = :s", s=session_id,
        )  # fmt: skip
        return sorted(tuple(row) for row in rows)

    def _runs(self, session_id: str) -> list[Any]:
        rows = self._sql(
            "select id, level, state, attempt, content_failures, crashes, input_ids, case when retry_at is null then null"
            " when retry_at <= clock_timestamp() then 'now' else 'later' end as retry, node_id"
            " from mneme.compaction_runs where session_id = :s order by started_at, id", s=session_id,
        )  # fmt: skip
        return [tuple(row) for row in rows]

    @invariant()
    def what_is_due_can_be_found(self) -> None:
        """By the sweep, should every message be lost: a node that it has not seen, a running run, or a retry."""
        for session_id, model in self.model.items():
            if model.due_level() is not None and not model.paused:  # resuming it makes it findable
                found = self._sql(
                    "select exists (select from mneme.summary_nodes where session_id = :s and swept_at is null)"
                    " or exists (select from mneme.compaction_runs where session_id = :s"
                    "            and (state = 'running' or retry_at is not null))", s=session_id,
                )  # fmt: skip
                assert found.scalar_one()

    @invariant()
    def every_snapshot_is_remembered_once(self) -> None:
        """Read off the model, which the rows were found equal to."""
        for model in self.model.values():
            leaves = [leaf for n in model.nodes.values() if n.superseded_by is None for leaf in model.leaves(n.id)]
            assert sorted(map(str, leaves)) == sorted(str(n.id) for n in model.nodes.values() if n.level == 1)


def test_the_protocol_keeps_to_its_rules(engine: Engine, request: pytest.FixtureRequest) -> None:
    class OnThisDatabase(Protocol):
        pass

    OnThisDatabase.engine = engine
    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=50, deadline=None, print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
