"""Redoing extracts that stand in place of a model's answer, once the model has a sound one."""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from sqlalchemy import Engine

from models.breaker import server_of
from models.engine import get_engine, in_transaction
from models.errors import BrokerError, ContentFailure, FoldFailed, SettingsError
from models.repairs import Degraded, NotClaimed, NotNow, claim_repair, spent_today, to_redo
from models.runs import Claim, LostLease, Usage
from models.settings import EXTRACT, Settings, get_settings
from tasks import ending
from tasks.answers import Declined
from tasks.asking import Asking
from tasks.broker import publish
from tasks.deadline import Deadline
from tasks.ending import Ended
from tasks.events import Event, within
from tasks.identity import worker_name
from tasks.prompt import load_prompt
from tasks.work import faults_of_ours

logger = logging.getLogger("mneme.repair")

_ROUND_SECONDS = 60.0
"""A worker that is asked to stop lets its task finish, so a task must have an end."""

Outcome = Literal["redone", "declined", "failed", "lost_lease"] | NotNow
Told = Callable[[Degraded, Outcome], None]


@dataclass(frozen=True)
class RepairReport:
    """How many extracts were redone, how many of the attempts came to something else, and why it stopped before the end."""

    redone: int
    others: dict[str, int]
    stopped: str | None = None

    def as_result(self) -> dict[str, object]:
        """Return the report as plain values."""
        return {"redone": self.redone, **self.others, "stopped": self.stopped}


def repair(settings: Settings | None = None, engine: Engine | None = None) -> RepairReport:
    """Redo extracts, oldest first, for a minute at most, within what a day may cost.

    Raises:
        StorageError: the database is out of reach.
    """
    settings = settings or get_settings()
    engine = engine or get_engine(settings)
    if settings.require_model() == EXTRACT:
        return RepairReport(0, {}, "llm.model is extract: no model has a better answer")
    until = time.monotonic() + min(_ROUND_SECONDS, settings.schedules.repair_seconds / 2)

    def may_go_on() -> str | None:
        if time.monotonic() > until:
            return "time is up"
        spent = in_transaction(engine, spent_today)
        most = settings.schedules.repair_tokens_per_day
        return f"{spent} tokens in 24 hours, of {most} allowed" if spent >= most else None

    report = redo_all(settings, engine, may_go_on=may_go_on)
    if report.redone or report.others:
        logger.info(Event("repair", **report.as_result()))
    return report


def redo_all(
    settings: Settings,
    engine: Engine,
    session_id: str | None = None,
    *,
    every: bool = False,
    may_go_on: Callable[[], str | None] = lambda: None,
    told: Told = lambda degraded, outcome: None,
) -> RepairReport:
    """Redo extracts one after another, until there are none, or it makes no sense to go on.

    Args:
        settings: whom to ask, and limits.
        engine: where.
        session_id: those of this session alone.
        every: also those that were tried a short time ago.
        may_go_on: asked before each; why not, or None.
        told: of each that was tried.

    Raises:
        SettingsError: no model is set, or it is the extract.
        StorageError: the database is out of reach.
    """
    outcomes: Counter[str] = Counter()
    tried: list[UUID] = []
    stopped = None
    while stopped is None:
        found = in_transaction(engine, lambda c: to_redo(c, session_id, every=every, but=tried))
        stopped = may_go_on() if found else None
        if not found or stopped:
            break
        (degraded,) = found
        tried.append(degraded.id)
        redoing = Redoing(settings, engine, degraded)
        outcome = redoing.run()
        outcomes[outcome] += 1
        told(degraded, outcome)
        # What is wrong with one answer says nothing of the next; what is wrong with the server does.
        if outcome == "held":
            stopped = "the breaker of the model's server is open"
        elif redoing.failure is not None and not isinstance(redoing.failure, ContentFailure):
            stopped = str(redoing.failure)
    return RepairReport(outcomes.pop("redone", 0), dict(outcomes), stopped)


class Redoing:
    """Redoes one extract; ``failure`` is why, if it failed."""

    def __init__(self, settings: Settings, engine: Engine, degraded: Degraded) -> None:
        if settings.require_model() == EXTRACT:
            raise SettingsError("llm.model is extract: set a model that can redo what was extracted in its place")
        self._settings, self._engine, self._degraded = settings, engine, degraded
        self._usage = Usage()
        self.failure: FoldFailed | None = None

    def run(self) -> Outcome:
        """Redo it, and say what came of it.

        Raises:
            StorageError: the database is out of reach.
        """
        deadline = Deadline.after(self._settings.mneme.run_seconds)
        try:
            claimed = in_transaction(
                self._engine,
                lambda connection: claim_repair(
                    connection, self._degraded.id, self._settings.mneme.lease_seconds,
                    worker=worker_name(), server=server_of(self._settings), spend=self._settings.spend,
                ),
            )  # fmt: skip
        except NotClaimed as error:
            return error.why
        with within(session=claimed.session_id, run=str(claimed.run_id)):
            return self._try(claimed, deadline)

    def _try(self, claimed: Claim, deadline: Deadline) -> Outcome:
        try:
            return self._redo(claimed, deadline)
        except LostLease:
            return "lost_lease"
        except FoldFailed as failure:
            self.failure = failure
            self._log("repair failed", claimed, logging.WARNING, kind=failure.kind, error=failure)
            self._end(ending.fail(self._engine, self._settings, claimed, failure, self._usage))
            return "failed"
        except KeyboardInterrupt:
            ending.give_up(self._engine, self._settings, claimed, self._usage)
            raise

    def _redo(self, claimed: Claim, deadline: Deadline) -> Outcome:
        from tasks.openai_client import OpenAIClient

        settings = self._settings
        with faults_of_ours():
            client = OpenAIClient(settings, os.environ.get("OPENAI_API_KEY"))
            asking = Asking(
                client,
                settings,
                load_prompt(settings),
                deadline,
                model=settings.require_model(),
                called=self._note_call,
            )
            answer = asking.fold(claimed.batch)
        ended = ending.replace(self._engine, settings, claimed, self._degraded.id, answer, self._usage)
        self._log("repair ends", claimed, state=ended.state, new=ended.node_id)
        self._end(ended)
        if ended.state not in ("succeeded", "declined"):
            return "lost_lease"
        return "declined" if isinstance(answer, Declined) else "redone"

    def _log(self, what: str, claimed: Claim, severity: int = logging.INFO, **fields: object) -> None:
        said = {"session": claimed.session_id, "node": self._degraded.id, "run": claimed.run_id, **fields}
        logger.log(severity, Event(what, **said))

    def _end(self, ended: Ended) -> None:
        """Publish the session if it is due by now; should the message be lost, the sweep finds the run's row."""
        if ended.after is None or not ended.after.due or self._settings.broker.url is None:
            return
        try:
            publish(self._settings, self._degraded.session_id)
        except BrokerError as error:
            logger.warning("%s", error)

    def _note_call(self, calls: int, prompt_tokens: int, completion_tokens: int) -> None:
        called = replace(self._usage, llm_calls=self._usage.llm_calls + calls)
        self._usage = called.plus(prompt_tokens, completion_tokens)
