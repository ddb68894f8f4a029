"""Hints on their way to the broker: a bounded queue, one background thread, and no waiting for anybody else.

A hint that is lost costs time and never memory: the worker's sweep finds every due session in Postgres.
"""

import atexit
import logging
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import TypeAlias

from kombu import Connection

from mneme_client import broker

logger = logging.getLogger("mneme_client")

QUEUE_LENGTH = 10_000
WARN_EVERY_SECONDS = 10.0
FLUSH_AT_EXIT_SECONDS = 3.0


Hint: TypeAlias = tuple[str, str]
"""The broker's URL and the session's id."""


class Outbox:
    """Takes session ids to the broker. It starts its thread at the first of them, and anew in a forked child."""

    def __init__(self, *, queue_length: int = QUEUE_LENGTH) -> None:
        self._queue_length = queue_length
        self.forget()

    def forget(self) -> None:
        """Begin anew, with nothing of what the parent process had: its thread, its lock, its connection, its hints."""
        self._hints: queue.Queue[Hint] = queue.Queue(self._queue_length)
        self._waiting: set[Hint] = set()
        self._lock = threading.Lock()
        self._started = False
        self._warned_at = float("-inf")
        self._lost = 0

    def put(self, broker_url: str, session_id: str) -> bool:
        """Hand over a hint without waiting; say whether it was taken. Where it was not, that is logged.

        A hint that waits already is enough: many writes to a session make few messages.
        """
        hint = (broker_url, session_id)
        if sys.is_finalizing():  # starting a thread would wait for ever
            self.warn("the interpreter is shutting down")
            return False
        try:
            with self._lock:
                if hint not in self._waiting:
                    self._start()
                    self._hints.put_nowait(hint)
                    self._waiting.add(hint)
        except queue.Full:
            self.warn("the queue of hints is full")
            return False
        except RuntimeError:  # no thread can be started any more
            self.warn("the interpreter is shutting down")
            return False
        return True

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until every hint was tried, at most so long; say whether it was."""
        until = time.monotonic() + timeout_seconds
        while self._hints.unfinished_tasks:
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def warn(self, what: str) -> None:
        """Log that a hint was lost, but not once for each of thousands that meet the same dead broker."""
        self._lost += 1
        if time.monotonic() - self._warned_at < WARN_EVERY_SECONDS:
            return
        self._warned_at = time.monotonic()
        logger.warning("%s; %d hints not sent so far, mneme's sweep makes up for them", what, self._lost)

    def _start(self) -> None:
        if not self._started:
            work = threading.Thread(target=self._work, args=(self._hints,), name="mneme-client", daemon=True)
            work.start()
            self._started = True

    def _work(self, hints: "queue.Queue[Hint]") -> None:
        connected_to: str | None = None
        connection: Connection | None = None
        while True:
            hint = broker_url, session_id = hints.get()
            with self._lock:
                self._waiting.discard(hint)
            try:
                if connection is None or connected_to != broker_url:
                    _close(connection)
                    connection, connected_to = broker.connect(broker_url), broker_url
                broker.send(connection, session_id)
            except Exception as error:  # noqa: BLE001 - a dead thread would lose every later hint without a word
                self.warn(f"session {session_id!r}: the broker took no job ({type(error).__name__})")
                _close(connection)
                connection = None
            finally:
                hints.task_done()


def _close(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(Exception):
            connection.release()


outbox = Outbox()
atexit.register(lambda: outbox.flush(FLUSH_AT_EXIT_SECONDS))
if sys.platform != "win32":
    os.register_at_fork(after_in_child=broker.forget)
    os.register_at_fork(after_in_child=outbox.forget)
