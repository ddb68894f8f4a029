"""``L2Runner``: the life of a job. ``run`` reads like the six steps of the design; each step is a call."""

import logging
import os
from dataclasses import asdict, replace
from traceback import extract_tb

from sqlalchemy import Engine

from models import runs
from models.breaker import Server, server_of
from models.checks import check_session_id
from models.claims import Reviewed, Skip, claim
from models.engine import get_engine, in_transaction
from models.errors import BrokerError, FoldFailed, InputTooLong, StorageError, TransientFailure
from models.nodes import SummaryNode
from models.runs import Claim, Count, Fold, LostLease, Usage
from models.settings import EXTRACT, Settings, get_settings
from tasks import ending, model, prompt
from tasks.answers import Declined, accept, check_summary
from tasks.broker import publish
from tasks.deadline import Deadline
from tasks.ending import Ended
from tasks.extract import COMPACTION_LEVEL, EXTRACT_VERSION, extract
from tasks.identity import worker_name
from tasks.model import ChatClient
from tasks.openai_client import OpenAIClient
from tasks.report import Report

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
        SettingsError: no model or database is set.
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
        self._usage = Usage()

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
        counted = self._count()
        if not counted.due:
            return self._skip(Skip("below_threshold", counted.level, counted.uncovered))
        deadline = Deadline.after(self._settings.mneme.run_seconds)
        claimed = self._claim(counted)
        if isinstance(claimed, Skip):
            return self._skip(claimed)
        if isinstance(claimed, Reviewed):
            return self._reviewed(claimed)
        try:
            claimed, answer = self._ask(claimed, deadline)
            ended = ending.commit(self._engine, self._settings, claimed, answer, self._usage)
        except FoldFailed as failure:
            self._failed(claimed, failure)
            raise
        except LostLease:
            ended = ending.give_up(self._engine, self._settings, claimed, self._usage)
            answer = Declined()
        self._log_breaker(ended)
        self._publish_again(ended)
        return self._report(claimed, ended, answer)

    # ------------------------------------------------------------------------------------------ 1 to 3

    def _count(self) -> Count:
        return in_transaction(self._engine, lambda c: runs.count(c, self._session_id, self._settings.mneme))

    def _claim(self, counted: Count) -> Claim | Reviewed | Skip:
        budget = prompt.input_budget(self._settings)
        claimed = claim(self._engine, counted, self._settings.mneme, budget, worker=worker_name(), server=self._server)
        if isinstance(claimed, Claim):
            self._log(
                "fold begins", claimed, attempt=claimed.attempt, nodes=len(claimed.batch), uncovered=claimed.uncovered
            )
        return claimed

    # ------------------------------------------------------------------------------------------ 4

    def _ask(self, claimed: Claim, deadline: Deadline) -> tuple[Claim, Fold | Declined]:
        """Return the answer, and the claim, whose batch is smaller if the server found it too long."""
        try:
            try:
                return claimed, self._answer(claimed.batch, deadline)
            except InputTooLong:
                if len(claimed.batch) < 2:
                    raise
                claimed = self._halve(claimed)
                return claimed, self._answer(claimed.batch, deadline)
        except (FoldFailed, LostLease):
            raise
        except StorageError as error:
            raise _ours(str(error)) from None
        except Exception as error:  # noqa: BLE001
            # A fault of ours, or of a client that was passed in: recorded like any failure, and told by type and place
            # alone, since its message may quote the conversation.
            place = extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(place.filename)}:{place.lineno}"
            raise _ours(f"internal error: {type(error).__name__} at {where}") from None

    def _answer(self, batch: tuple[SummaryNode, ...], deadline: Deadline) -> Fold | Declined:
        max_tokens = self._settings.mneme.max_tokens
        if self._client is None:
            summary = extract(batch, max_tokens)
            check_summary(summary, batch, max_tokens)
            return Fold(summary, EXTRACT, EXTRACT_VERSION, COMPACTION_LEVEL)
        self._usage = replace(self._usage, llm_calls=self._usage.llm_calls + 1)
        answer = self._client.chat_with_tools(
            [{"role": "user", "content": prompt.user_message(batch, max_tokens)}],
            tools=self.TOOLS,
            system=self.SYSTEM_PROMPT,
            deadline=deadline,
        )
        self._usage = self._usage.plus(answer.prompt_tokens, answer.completion_tokens)
        accepted = accept(answer, batch, max_tokens)
        return accepted if isinstance(accepted, Declined) else Fold(accepted, self._model, prompt.PROMPT_VERSION)

    def _halve(self, claimed: Claim) -> Claim:
        smaller = replace(claimed, batch=claimed.batch[: len(claimed.batch) // 2])
        in_transaction(self._engine, lambda connection: runs.shrink(connection, claimed, smaller.batch))
        self._log("input too long, batch halved", smaller, nodes=len(smaller.batch))
        return smaller

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

    def _failed(self, claimed: Claim, failure: FoldFailed) -> None:
        self._log("fold failed", claimed, kind=failure.kind, error=failure)
        ended = ending.fail(self._engine, self._settings, claimed, failure, self._usage)
        if ended.state != "failed":
            self._log("lease lost, nothing written", claimed)
        self._log_breaker(ended)
        self._publish_again(ended)

    def _skip(self, skip: Skip) -> Report:
        report = self._new_report(skip.outcome, skip.level, skip.uncovered)
        logger.debug(
            "skipped: session=%s outcome=%s uncovered=%d threshold=%d",
            report.session_id, report.outcome, report.uncovered, report.threshold,
        )  # fmt: skip
        return report

    def _reviewed(self, reviewed: Reviewed) -> Report:
        logger.warning(
            "nodes dismissed: session=%s level=%d run=%s reason=%s nodes=%d",
            self._session_id, reviewed.level, reviewed.run_id, reviewed.reason, reviewed.dismissed,
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
            said = "all its calls are on hold" if ended.breaker == "opened" else "its calls go on"
            logger.warning("breaker %s: model=%s of %s: %s", ended.breaker, self._model, self._server.base_url, said)

    def _log(self, what: str, claimed: Claim, **fields: object) -> None:
        said = {"session": claimed.session_id, "level": claimed.level, "run": claimed.run_id, **fields}
        logger.info("%s: %s", what, " ".join(f"{key}={value}" for key, value in said.items()))


def _ours(error: str) -> TransientFailure:
    """Return a failure that tells nothing of the model's server."""
    failure = TransientFailure(error)
    failure.blame = "nobody"
    return failure


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
    return OpenAIClient(settings, os.environ.get("OPENAI_API_KEY"))
