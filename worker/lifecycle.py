"""What happens when a worker starts and stops."""

import logging
import os
from typing import Any

from celery import signals

from models.engine import get_engine, make_engine, transaction
from models.errors import SchemaError, SettingsError, StorageError
from models.migrate import check_schema
from models.runs import release_worker
from models.settings import EXTRACT, Settings, get_settings
from tasks.identity import worker_name
from tasks.prompt import input_budget
from worker.exits import or_exit

logger = logging.getLogger("mneme.worker")


def connect() -> None:
    """Connect the functions below to Celery's signals."""
    signals.celeryd_init.connect(_starting, weak=False)
    signals.worker_shutdown.connect(_stopped, weak=False)


def check_worker(settings: Settings) -> None:
    """Refuse to start a worker that could not fold anything.

    Raises:
        SettingsError: no database or model is set, no key for OpenAI itself, or a window too small for the prompt.
        SchemaError: the schema is missing or older than this code.
    """
    model = settings.require_model()
    if model != EXTRACT and settings.llm.base_url is None and not os.environ.get("OPENAI_API_KEY"):
        raise SettingsError(
            f"llm.model is {model!r} and there is no key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server without keys"
        )
    input_budget(settings)
    engine = make_engine(settings.require_database_url(), pooled=False)
    try:
        check_schema(engine)
    except SchemaError:
        raise
    except StorageError as error:
        # Down for now: a worker waits for its database, as it waits for its broker.
        logger.warning("the schema could not be checked, going on: %s", error)


def _starting(**_: Any) -> None:
    or_exit(lambda: check_worker(get_settings()))


def _stopped(**_: Any) -> None:
    """Release what a cold shutdown has cut off; after a warm one nothing is left running."""
    try:
        with transaction(get_engine(get_settings())) as connection:
            released = release_worker(connection, worker_name())
    except StorageError as error:
        logger.warning("running folds could not be released, their leases will pass: %s", error)
        return
    if released:
        logger.warning("released %d running folds", released)
