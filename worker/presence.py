"""A worker tells Postgres a few times a minute that it is there, from a thread of its own: ``mneme status`` shows it."""

import logging
import threading
from importlib.metadata import version

from models.engine import get_engine, transaction
from models.errors import StorageError
from models.presence import NOTE_EVERY_SECONDS, forget_worker, note_worker
from models.settings import get_settings
from tasks.identity import worker_name

logger = logging.getLogger("mneme.worker")


class Presence:
    """The thread; one in a process."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin, unless it has begun: Celery says that a worker is ready after every reconnection."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._note, name="mneme-presence", daemon=True)
            self._thread.start()

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
        while True:
            try:
                with transaction(get_engine(settings)) as connection:
                    note_worker(connection, worker_name(), release, settings.worker.concurrency)
            except StorageError as error:
                # Its folds say so too, and louder.
                logger.debug("the database does not know that this worker is there: %s", error)
            if self._ended.wait(NOTE_EVERY_SECONDS):
                return
