"""A worker tells Postgres a few times a minute that it is there, from a thread of its own: ``mneme status`` shows it."""

import logging
import threading
from importlib.metadata import version

from models.engine import get_engine, transaction
from models.errors import StorageError
from models.presence import NOTE_EVERY_SECONDS, forget_worker, note_worker
from models.settings import get_settings
from tasks.identity import worker_name
from worker.systemd import tell_status

logger = logging.getLogger("mneme.worker")

REMIND_EVERY_NOTES = 3
"""While Postgres is away the log says so once a minute: nothing else might, for who cannot claim has no run to tell of."""


class Presence:
    """The thread; one in a process."""

    def __init__(self) -> None:
        self._ending = False
        self._state = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin; or, since Celery says that a worker is ready after every reconnection, say again what it does."""
        if self._thread is not None:
            self._say()
        else:
            self._thread = threading.Thread(target=self._note, name="mneme-presence", daemon=True)
            self._thread.start()

    def ending(self) -> None:
        """Say nothing more to systemd: the worker ends, and its row stays while folds finish."""
        self._ending = True

    def end(self) -> None:
        """Delete the row. A database that is out of reach keeps it, and takes the worker for gone."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join(NOTE_EVERY_SECONDS)
        try:
            with transaction(get_engine(get_settings()), statement_seconds=2) as connection:
                forget_worker(connection, worker_name())
        except StorageError as error:
            logger.debug("the row of this worker stays: %s", error)

    def _note(self) -> None:
        settings, release = get_settings(), version("mneme-worker")
        slots, missed = (1 if settings.worker.pool == "solo" else settings.worker.concurrency), 0
        while True:
            try:
                with transaction(get_engine(settings)) as connection:
                    note_worker(connection, worker_name(), release, slots)
            except StorageError as error:
                if missed % REMIND_EVERY_NOTES == 0:
                    logger.warning("nothing is folded here while Postgres does not serve this worker: %s", error)
                missed += 1
                self._tell(f"waiting for Postgres: {error}")
            else:
                if missed:
                    logger.info("Postgres serves this worker again")
                missed = 0
                self._tell("folds, " + (f"up to {slots} sessions at once" if slots > 1 else "one session at a time"))
            if self._ended.wait(NOTE_EVERY_SECONDS):
                return

    def _tell(self, what: str) -> None:
        """Tell a change alone: meanwhile the loop may wait for Redis, and says so."""
        if what != self._state:
            self._state = what
            self._say()

    def _say(self) -> None:
        if self._state and not self._ending:
            tell_status(self._state)
