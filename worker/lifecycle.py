"""What happens when a worker starts, and when it is cut off."""

import logging
import os
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from celery import Celery, bootsteps, signals

from models.engine import get_engine, make_engine, transaction
from models.errors import SettingsError, StorageError
from models.migrate import check_schema_if_reachable
from models.runs import release_worker
from models.settings import EXTRACT, Settings, get_settings
from tasks.calls import cut_off_calls
from tasks.events import Event
from tasks.identity import worker_name
from tasks.prompt import input_budget
from worker import logs
from worker.alive import Alive, check_liveness_file
from worker.exits import NEGATIVE, or_exit
from worker.presence import Presence
from worker.systemd import STOPPING, tell_systemd

logger = logging.getLogger("mneme.worker")

LET_GO_SECONDS = 5.0
_presence = Presence()


def connect(app: Celery) -> None:
    """Have Celery call the functions below."""
    signals.celeryd_init.connect(_starting, weak=False)
    signals.beat_init.connect(_beat_starting, weak=False)
    signals.worker_ready.connect(_ready, weak=False)
    signals.worker_shutting_down.connect(_ending, weak=False)
    signals.worker_shutdown.connect(_ended, weak=False)
    app.steps["worker"].update((LetGo, Alive))


def check_worker(settings: Settings) -> None:
    """Refuse to start a worker that could not fold anything.

    Raises:
        SettingsError: no database or model is set, no key for OpenAI itself, or a window too small for the prompt.
        SchemaError: the schema is missing or older than this code.
    """
    model = settings.require_model()
    key = os.environ.get("OPENAI_API_KEY", "")
    if not (key.isascii() and key.isprintable()):
        raise SettingsError("OPENAI_API_KEY holds a character that no key has: look for a line end or a quote in it")
    if model != EXTRACT and settings.llm.base_url is None and not key:
        raise SettingsError(
            f"llm.model is {model!r} and there is no key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server without keys"
        )
    input_budget(settings)
    if model != EXTRACT:
        import_module("tasks.openai_client")  # now, and not within the first fold
    engine = make_engine(settings.require_database_url(), pooled=False)
    # Down for now: a worker waits for its database, as it waits for its broker.
    if away := check_schema_if_reachable(engine):
        logger.warning("the schema could not be checked, going on: %s", away)


def _starting(**_: Any) -> None:
    # Celery does so only afterwards, and with the options of its command line.
    _or_end(logs.set_up)
    _or_end(check_liveness_file)
    _or_end(lambda: check_worker(get_settings()))


def _ready(**_: Any) -> None:
    _presence.begin()


def _ending(**_: Any) -> None:
    _presence.ending()
    tell_systemd(STOPPING)


def _ended(**_: Any) -> None:
    _presence.end()


def _beat_starting(**_: Any) -> None:
    _or_end(check_liveness_file)


def _or_end(check: Callable[[], None]) -> None:
    """End the process whatever is wrong: Celery logs what a handler of its signals raises, and starts unchecked."""
    try:
        or_exit(check)
    except Exception as error:
        traceback.print_exc()
        raise SystemExit(NEGATIVE) from error


class LetGo(bootsteps.StartStopStep):
    """Lets go of running folds when the worker is cut off (SIGQUIT); SIGTERM lets them finish.

    A step, because Celery sends no signal in a cold shutdown (``worker_shutdown`` belongs to the warm one).
    """

    requires = ("celery.worker.components:Pool",)

    def terminate(self, parent: Any) -> None:
        """Run before the pool is terminated."""
        let_go()

    def stop(self, parent: Any) -> None:
        """Leave a warm shutdown to the pool, which waits for what runs."""


def let_go() -> None:
    """Release the runs of this worker, then cut their calls off: a cut-off thread finds its run released.

    In a thread of its own, since Celery calls this from a signal handler, which may have interrupted anything.
    """
    thread = threading.Thread(target=_let_go, name="mneme-let-go", daemon=True)
    thread.start()
    thread.join(LET_GO_SECONDS)


def _let_go() -> None:
    released = 0
    try:
        with transaction(get_engine(get_settings())) as connection:
            released = release_worker(connection, worker_name())
    except StorageError as error:
        logger.warning("running folds could not be released, their leases will pass: %s", error)
    cut_off = cut_off_calls()
    _presence.end()
    if released or cut_off:
        logger.warning(Event("cold shutdown, running folds are let go", released=released, cut_off_calls=cut_off))
