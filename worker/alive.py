"""A file that is touched every few seconds while the loop of worker or beat turns, for a probe that starts no interpreter:
``find /run/mneme/alive -mmin -2 | grep -q .``; and the same told to systemd's watchdog, where that listens.

A loop that is trying to reach its broker turns: to end the process would mend nothing. Nothing here asks Postgres.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from celery import bootsteps
from celery.beat import Scheduler as CeleryScheduler
from celery.beat import SchedulingError
from celery.worker.consumer import Consumer as CeleryConsumer

from models.errors import SettingsError
from models.settings import get_settings
from tasks.broker import SWEEP
from tasks.events import Event
from worker.systemd import TURNING, WAITING_FOR_BROKER, tell_status, tell_systemd

logger = logging.getLogger("mneme.alive")

OFTEN_SECONDS = 5.0


def check_liveness_file() -> None:
    """Make the file.

    Raises:
        SettingsError: it cannot be written, and a probe would end a process that is well.
    """
    path = get_settings().worker.liveness_file
    if path is None:
        return
    try:
        if Path(path).is_dir():
            raise SettingsError(f"worker.liveness_file: {path}: it is a directory: name a file in it")
        Path(path).touch()
    except OSError as error:
        raise SettingsError(f"worker.liveness_file: {path}: it cannot be written: {error.strerror}") from None


def touch(state: str = TURNING) -> None:
    """Touch the file, if one is set, and tell systemd, if it listens; a full disk is told of, and ends nothing."""
    tell_systemd(state)
    path = get_settings().worker.liveness_file
    if path is None:
        return
    try:
        Path(path).touch()
    except OSError as error:
        logger.warning("worker.liveness_file: %s: it cannot be written: %s", path, error.strerror)


class Alive(bootsteps.StartStopStep):
    """Touches the file from the worker's loop."""

    requires = ("celery.worker.components:Timer", "celery.worker.components:Hub")

    def start(self, parent: Any) -> None:
        """Begin, before the consumer, which ends the timers that were set since it connected."""
        touch()
        parent.timer.call_repeatedly(OFTEN_SECONDS, touch)


class Consumer(CeleryConsumer):
    """Celery's consumer, which touches the file also while it waits for its broker."""

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, for as long as it takes."""
        return super().ensure_connected(_touching(conn))


class Scheduler(CeleryScheduler):
    """Celery's scheduler in memory, which touches the file at every tick, and while it waits for its broker."""

    def setup_schedule(self) -> None:
        """Have the sweep due at once: what waits, and who looks at the status, need not wait for its first interval."""
        super().setup_schedule()
        ago = timedelta(seconds=get_settings().schedules.sweep_seconds)
        self.schedule[SWEEP].last_run_at = datetime.now(UTC) - ago

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Send what is due; returns the seconds until it is to be called again."""
        touch()
        return super().tick(*args, **kwargs)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send what is due. A broker that is away is one line: Celery's own writes the whole stack, at every tick."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            tell_systemd(WAITING_FOR_BROKER)
            logger.warning(
                Event("not sent, the next tick tries again", task=entry.task, error=str(error).splitlines()[0])
            )
        else:
            tell_status(f"sends what is due, {entry.task} last")
            logger.debug(Event("sent", task=entry.task))

    def _ensure_connected(self) -> Any:
        _touching(self.connection)
        return super()._ensure_connected()  # type: ignore[misc]


def _touching(connection: Any) -> Any:
    """Have a connection call ``touch`` each second for which it waits until it tries again."""
    ensure = connection.ensure_connection

    def ensure_connection(*args: Any, callback: Callable[[], None] | None = None, **kwargs: Any) -> Any:
        def turning() -> None:
            touch(WAITING_FOR_BROKER)
            if callback is not None:
                callback()

        return ensure(*args, callback=turning, **kwargs)

    connection.ensure_connection = ensure_connection
    return connection
