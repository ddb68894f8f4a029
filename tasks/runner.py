"""``L2Runner``: the life of a job. ``run`` reads like the six steps of the design; each step is a call."""

import logging
import os
from dataclasses import asdict, replace

from sqlalchemy import Engine

from models import runs
from models.breaker import Server, server_of
from models.checks import check_session_id
from models.claims import Reviewed, Skip, claim
from models.engine import get_engine, in_transaction
from models.errors import BrokerError, ContentFailure, FoldFailed
from models.runs import Claim, Count, Fold, LostLease, Usage
from models.settings import EXTRACT, Settings, get_settings
from tasks import ending, last_resort, model, prompt
from tasks.answers import Declined
from tasks.asking import Asking
from tasks.broker import publish
from tasks.deadline import Deadline
from tasks.ending import Ended
from tasks.events import Event, within
from tasks.identity import worker_name
from tasks.model import ChatClient
from tasks.report import Report
from tasks.work import AskingModel, Extracting, Work

logger = logging.getLogger("mneme.job")


class L2Runner:
    """Folds a session's oldest uncovered nodes once, if enough of them wait.

    Args:
        session_id: the session.
        client: what asks the model; by default the settings' model, or the extract when that is the model.
        settings: by default the process's.
        engine: by default the settings'.

    Raises:
        InvalidNode: the session id cannot be one.
        SettingsError: no model or database is set, or there is no such prompt.
    """

    TOOLS = model.TOOLS
    SYSTEM_PROMPT = prompt.SYSTEM_PROMPT

    def __init__(
        self,
        session_id: str,
        client: ChatClient | None = None,
        *,
        settings: Settings | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._session_id = check_session_id(session_id)
        self._settings = settings or get_settings()
        self._engine = engine or get_engine(self._settings)
        self._client = client if client is not None else _client(self._settings)
        named = self._settings.llm.model
        # A client of one's own stands for a model of its own, when the settings name none, or the extract.
        self._model = named if named and (client is None or named != EXTRACT) else type(client).__name__
        self._server = _server(self._settings, self._model, client)
        self._prompt = prompt.load_prompt(self._settings)
        self._usage = Usage()

    @property
    def usage(self) -> Usage:
        """What the last run took, whether it succeeded or failed."""
        return self._usage

    def call(self) -> str | None:
        """Make one fold.

        Returns:
            The summary, or None when there was nothing to do or the model declined.

        Raises:
            FoldFailed: the attempt failed, and is recorded.
            StorageError: the database is out of reach.
        """
        return self.run().summary

    def run(self) -> Report:
        """Make at most one fold and say what came of it; raises as ``call`` does."""
        self._usage = Usage()
        with within(session=self._session_id):
            counted = self._count()
            if not counted.due:
                return self._skip(Skip("below_threshold", counted.level, counted.uncovered))
            deadline = Deadline.after(self._settings.mneme.run_seconds)
            claimed = self._claim(counted)
            if isinstance(claimed, Skip):
                return self._skip(claimed)
            if isinstance(claimed, Reviewed):
                return self._reviewed(claimed)
            with within(run=str(claimed.run_id)):
                return self._fold(claimed, deadline)

    def _fold(self, claimed: Claim, deadline: Deadline) -> Report:
        """Make a summary of what was claimed, and end the run."""
        self._log(
            "fold begins", claimed, attempt=claimed.attempt, nodes=len(claimed.batch), uncovered=claimed.uncovered
        )
        work = self._work(claimed, deadline)
        answer: Fold | Declined
        try:
            answer = work.fold()
            ended = ending.commit(self._engine, self._settings, work.claimed, answer, self._usage)
        except ContentFailure as failure:
            if not last_resort.is_due(work.claimed, self._settings):
                self._failed(work.claimed, failure)
                raise
            answer, ended = self._last_resort(work.claimed, failure)
        except FoldFailed as failure:
            self._failed(work.claimed, failure)
            raise
        except LostLease:
            ended = ending.give_up(self._engine, self._settings, work.claimed, self._usage)
            answer = Declined()
        self._log_breaker(ended)
        self._publish_again(ended)
        return self._report(work.claimed, ended, answer)

    # ------------------------------------------------------------------------------------------ 1 to 3

    def _count(self) -> Count:
        return in_transaction(self._engine, lambda c: runs.count(c, self._session_id, self._settings.mneme))

    def _claim(self, counted: Count) -> Claim | Reviewed | Skip:
        budget = prompt.input_budget(self._settings)
        return claim(
            self._engine, counted, self._settings.mneme, budget,
            worker=worker_name(), server=self._server, spend=self._settings.spend,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------ 4

    def _work(self, claimed: Claim, deadline: Deadline) -> Work:
        if self._client is None:
            return Extracting(claimed, self._settings.mneme.max_tokens)
        asking = Asking(self._client, self._settings, self._prompt, deadline, model=self._model, called=self._note_call)
        return AskingModel(claimed, asking, self._engine, self._halved)

    def _halved(self, claimed: Claim) -> None:
        self._log("input too long, batch halved", claimed, nodes=len(claimed.batch))

    def _note_call(self, calls: int, prompt_tokens: int, completion_tokens: int) -> None:
        called = replace(self._usage, llm_calls=self._usage.llm_calls + calls)
        self._usage = called.plus(prompt_tokens, completion_tokens)

    # ------------------------------------------------------------------------------------------ 6

    def _publish_again(self, ended: Ended) -> None:
        """Publish the session once more if it is still due; should the message be lost, the sweep finds the run's row."""
        if not ended.publish_again or self._settings.broker.url is None:
            return
        try:
            publish(self._settings, self._session_id)
        except BrokerError as error:
            logger.warning("%s", error)

    # ------------------------------------------------------------------------------------------ what came of it

    def _last_resort(self, claimed: Claim, failure: ContentFailure) -> tuple[Fold | Declined, Ended]:
        """Write what stands in for an answer; raises ``TransientFailure``, recorded, when the database does not take it."""
        self._log(
            "no usable answer, run after run", claimed, logging.WARNING,
            runs=claimed.content_failures + 1, fallback=self._settings.mneme.fallback, error=failure,
        )  # fmt: skip
        try:
            return last_resort.end(self._engine, self._settings, claimed, failure, self._usage)
        except FoldFailed as not_written:
            self._failed(claimed, not_written)
            raise

    def _failed(self, claimed: Claim, failure: FoldFailed) -> None:
        self._log("fold failed", claimed, logging.WARNING, attempt=claimed.attempt, kind=failure.kind, error=failure)
        ended = ending.fail(self._engine, self._settings, claimed, failure, self._usage)
        if ended.state != "failed":
            self._log("lease lost, nothing written", claimed)
        self._log_breaker(ended)
        self._publish_again(ended)

    def _skip(self, skip: Skip) -> Report:
        report = self._new_report(skip.outcome, skip.level, skip.uncovered)
        logger.debug(
            Event(
                "skipped", session=report.session_id, outcome=report.outcome, uncovered=report.uncovered,
                threshold=report.threshold,
            )
        )  # fmt: skip
        return report

    def _reviewed(self, reviewed: Reviewed) -> Report:
        logger.warning(
            Event(
                "nodes dismissed", session=self._session_id, to_level=reviewed.level, run=reviewed.run_id,
                reason=reviewed.reason, nodes=reviewed.dismissed,
            )
        )  # fmt: skip
        self._publish_again(Ended("declined", None, reviewed.after))
        return self._new_report("declined", reviewed.level, reviewed.uncovered)

    def _report(self, claimed: Claim, ended: Ended, answer: Fold | Declined) -> Report:
        outcome = {"succeeded": "folded", "declined": "declined"}.get(ended.state, "lost_lease")
        self._log("fold ends", claimed, outcome=outcome, node=ended.node_id, **asdict(self._usage))
        return replace(
            self._new_report(outcome, claimed.level, claimed.uncovered),
            node=str(ended.node_id) if ended.node_id else None,
            summary=answer.content if outcome == "folded" and isinstance(answer, Fold) else None,
            **asdict(self._usage),
        )

    def _new_report(self, outcome: str, level: int, uncovered: int) -> Report:
        return Report(outcome, self._session_id, level, uncovered, self._settings.mneme.l2_snapshot_threshold)

    def _log_breaker(self, ended: Ended) -> None:
        if ended.breaker is not None:
            logger.warning(Event(f"breaker {ended.breaker}", model=self._model, server=self._server.base_url))

    def _log(self, what: str, claimed: Claim, severity: int = logging.INFO, **fields: object) -> None:
        said = {"session": claimed.session_id, "to_level": claimed.level, "run": claimed.run_id, **fields}
        logger.log(severity, Event(what, **said))


def _server(settings: Settings, model_name: str, client: ChatClient | None) -> Server:
    """Return whose breaker the runs obey: that of the settings' server, or one of a client that was passed in."""
    return Server(f"client {type(client).__name__}", model_name) if client else server_of(settings)


def _client(settings: Settings) -> ChatClient | None:
    """Return the client of the configured model, or None for the extract.

    Raises:
        SettingsError: no model is set.
    """
    if settings.require_model() == EXTRACT:
        return None
    # Here: its library loads for a second, and beat and others need none of it.
    from tasks.openai_client import OpenAIClient

    return OpenAIClient(settings, os.environ.get("OPENAI_API_KEY"))
