"""Folding all that is due now, in this process: after an import, or when the workers are to be spared."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from sqlalchemy import Engine

from models.engine import in_transaction
from models.errors import ConfigurationFailure, FoldFailed, StorageError
from models.runs import count
from models.settings import Settings
from models.settings_sections import BrokerSettings
from tasks.runner import L2Runner

_LOOK_EVERY_SECONDS = 0.2


@dataclass
class Progress:
    """How far it is: ``sessions`` are done with, ``others`` counts what else came of them than that all of it was folded."""

    total: int = 0
    sessions: int = 0
    folds: int = 0
    tokens: int = 0
    others: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None

    def as_result(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "sessions": self.sessions, "of": self.total, "folds": self.folds, "tokens": self.tokens,
            "others": dict(self.others), "stopped": self.stopped,
        }  # fmt: skip


class Backfill:
    """Folds sessions until nothing more is due in them; a claim decides, so workers may fold the same ones meanwhile.

    Args:
        settings: whom to ask, and limits.
        engine: of as many connections as folds are made at once.
        session_ids: which.
        most_tokens: once so many were spent no further fold begins; what is under way may exceed it. None: no limit.
        told: of every change.
    """

    def __init__(
        self, settings: Settings, engine: Engine, session_ids: Sequence[str], *, most_tokens: int | None = None,
        told: Callable[[Progress], None] = lambda progress: None,
    ) -> None:  # fmt: skip
        # Nothing is published: the workers would begin what is to be bounded here.
        self._settings = settings.model_copy(update={"broker": BrokerSettings()})
        self._engine, self._session_ids, self._most_tokens, self._told = engine, session_ids, most_tokens, told
        self.progress = Progress(total=len(session_ids))
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, at_once: int, *, let_go: Callable[[], None]) -> Progress:
        """Fold, so many at once, until all is done or nothing more may begin.

        Args:
            at_once: how many folds run at the same time.
            let_go: releases what runs and cuts its calls off; called when this is interrupted, until nothing runs.

        Raises:
            KeyboardInterrupt: it was interrupted; what ran was let go of, and nothing is half done.
        """
        with ThreadPoolExecutor(at_once, thread_name_prefix="mneme-backfill") as pool:
            left = iter(self._session_ids)
            running: set[Future[None]] = set()
            try:
                while True:
                    while len(running) < at_once and not self._stop.is_set():
                        session_id = next(left, None)
                        if session_id is None:
                            break
                        running.add(pool.submit(self._fold_all, session_id))
                    if not running:
                        return self._ended()
                    done, running = wait(running, timeout=_LOOK_EVERY_SECONDS, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
            except BaseException:
                self._stop.set()
                while wait(running, timeout=_LOOK_EVERY_SECONDS).not_done:
                    let_go()
                raise

    def _fold_all(self, session_id: str) -> None:
        """Fold a session until there is nothing to do, or something is in the way."""
        outcome = "stopped"
        while not self._stop.is_set():
            outcome = self._fold(session_id)
            if outcome not in ("folded", "declined"):
                break
            if self._stop.is_set():
                outcome = "stopped" if self._still_due(session_id) else "below_threshold"
        with self._lock:
            self.progress.sessions += 1
            if outcome != "below_threshold":
                self.progress.others[outcome] += 1
            self._told(self.progress)

    def _still_due(self, session_id: str) -> bool:
        try:
            return in_transaction(
                self._engine, lambda connection: count(connection, session_id, self._settings.mneme)
            ).due
        except StorageError:
            return True  # as far as anybody can tell

    def _fold(self, session_id: str) -> str:
        """Make one fold, and say what came of it."""
        runner = L2Runner(session_id, settings=self._settings, engine=self._engine)
        outcome = "failed"
        try:
            outcome = runner.run().outcome
        except FoldFailed as failure:
            if isinstance(failure, ConfigurationFailure):
                self._end(str(failure))
        except StorageError as error:
            self._end(str(error))
        self._add(outcome, runner.usage.prompt_tokens + runner.usage.completion_tokens)
        return outcome

    def _add(self, outcome: str, tokens: int) -> None:
        with self._lock:
            self.progress.folds += outcome == "folded"
            self.progress.tokens += tokens
            self._told(self.progress)
            spent = self.progress.tokens
        spend = self._settings.spend
        if outcome == "held" and not (spend.session_tokens_per_hour or spend.session_tokens_per_day):
            self._end("calls are on hold: mneme status says why")
        elif self._most_tokens is not None and spent >= self._most_tokens:
            self._end(f"{spent:,} tokens were spent, of {self._most_tokens:,} allowed")

    def _ended(self) -> Progress:
        """Return how far it came; what was stopped when all was done was not stopped."""
        if self.progress.sessions == self.progress.total and not self.progress.others:
            self.progress.stopped = None
        return self.progress

    def _end(self, why: str) -> None:
        with self._lock:
            self.progress.stopped = self.progress.stopped or why
        self._stop.set()
