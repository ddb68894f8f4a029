"""Enqueueing for main apps: after the commit, and never waiting.

A hint goes into a bounded queue in memory, and one background thread takes it to the broker. A broker that is down or
frozen costs the caller nothing but a logged warning: the sweep finds every due session in Postgres.
"""

import atexit
import logging
import os
import queue
import threading
import time

from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker

from models.checks import check_session_id
from models.errors import BrokerError
from models.settings import Settings, get_settings
from models.store import WRITTEN_SESSIONS
from tasks.broker import publish

logger = logging.getLogger("mneme.enqueue")

QUEUE_LENGTH = 10_000
WARN_EVERY_SECONDS = 10.0
FLUSH_AT_EXIT_SECONDS = 3.0


class Publisher:
    """One background thread that takes session ids to the broker, through a bounded queue."""

    def __init__(self, settings: Settings, *, queue_length: int = QUEUE_LENGTH) -> None:
        self._settings = settings
        self._queue_length = queue_length
        self._lock = threading.Lock()
        self._warned_at = float("-inf")
        self._lost = 0
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._queue: queue.Queue[str] = queue.Queue(self._queue_length)
        threading.Thread(target=self._work, args=(self._queue,), name="mneme-publisher", daemon=True).start()

    def put(self, session_id: str) -> bool:
        """Hand over a session id without waiting; say whether there was room for it."""
        if self._pid != os.getpid():  # a thread does not live on in a forked child
            with self._lock:
                if self._pid != os.getpid():
                    self._start()
        try:
            self._queue.put_nowait(session_id)
        except queue.Full:
            self._warn("the queue of hints is full")
            return False
        return True

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything handed over was tried, at most so long; say whether it was."""
        until = time.monotonic() + timeout_seconds
        while self._queue.unfinished_tasks and self._pid == os.getpid():
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def _work(self, hints: "queue.Queue[str]") -> None:
        while True:
            session_id = hints.get()
            try:
                publish(self._settings, session_id)
            except BrokerError as error:
                self._warn(str(error))
            except Exception as error:  # noqa: BLE001 - a dead thread would lose every later hint without a word
                self._warn(f"session {session_id!r}: not enqueued ({type(error).__name__})")
            finally:
                hints.task_done()

    def _warn(self, what: str) -> None:
        """Log, but not once for each of thousands of hints that meet the same dead broker."""
        self._lost += 1
        if time.monotonic() - self._warned_at < WARN_EVERY_SECONDS:
            return
        self._warned_at = time.monotonic()
        logger.warning("%s; %d hints not delivered so far, the sweep makes up for them", what, self._lost)


_publishers: dict[Settings, Publisher] = {}
_publishers_lock = threading.Lock()


def _publisher(settings: Settings) -> Publisher:
    with _publishers_lock:
        if settings not in _publishers:
            settings.require_broker_url()
            _publishers[settings] = Publisher(settings)
        return _publishers[settings]


@atexit.register
def _flush_at_exit() -> None:
    """Give a script that writes and ends at once the time to say so."""
    until = time.monotonic() + FLUSH_AT_EXIT_SECONDS
    for publisher in _publishers.values():
        publisher.flush(max(0.0, until - time.monotonic()))


def enqueue_job(session_id: str, *, settings: Settings | None = None) -> bool:
    """Ask for the session to be looked at, without waiting. Call it once the snapshot is committed.

    Returns:
        Whether the hint was taken; if not, a warning is logged and the sweep will find the session.

    Raises:
        InvalidNode: it is no session id.
        SettingsError: no broker is set.
    """
    check_session_id(session_id)
    return _publisher(settings or get_settings()).put(session_id)


def enqueue_on_commit(
    session_factory: "sessionmaker[Session] | type[Session]", *, settings: Settings | None = None
) -> None:
    """Have every session of the factory enqueue what it wrote, once its outermost transaction has committed.

    The released savepoint of ``begin_nested`` is no commit, and what is rolled back is not enqueued.

    Raises:
        SettingsError: no broker is set.
    """
    settings = settings or get_settings()
    _publisher(settings)

    def committed(session: Session) -> None:
        # A session that has joined a transaction of its connection's is not the one that commits it.
        joined = isinstance(session.bind, Connection) and session.bind.in_transaction()
        if not session.in_nested_transaction() and not joined:
            for session_id in session.info.pop(WRITTEN_SESSIONS, ()):
                enqueue_job(session_id, settings=settings)

    def rolled_back(session: Session, ended: SessionTransaction) -> None:
        # What a savepoint took back may be enqueued all the same: a hint too many does no harm.
        if not ended.nested:
            session.info.pop(WRITTEN_SESSIONS, None)

    event.listen(session_factory, "after_commit", committed)
    event.listen(session_factory, "after_soft_rollback", rolled_back)
