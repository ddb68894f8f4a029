"""The periodic tasks that keep the house: old runs are forgotten, and the doctor is sent for."""

import logging
import time

from sqlalchemy import Engine

from models.doctor import diagnose
from models.engine import get_engine, in_transaction
from models.presence import forget_gone
from models.settings import Settings, get_settings
from models.upkeep import BEGINNING, Place, forget_runs, note_examination, take_examination
from tasks.events import Event

logger = logging.getLogger("mneme.upkeep")

PAGE = 500
_GONE_SECONDS = 86_400.0
_ROUND_SECONDS = 60.0
"""A worker that is asked to stop lets its task finish, so a task must have an end."""


def retention(settings: Settings | None = None, engine: Engine | None = None) -> dict[str, object]:
    """Forget runs that ended ``schedules.retention_days`` ago, a few hundred in a transaction, for a minute at most.

    Raises:
        StorageError: the database is out of reach.
    """
    settings = settings or get_settings()
    engine = engine or get_engine(settings)
    seconds = settings.schedules.retention_days * 86_400
    until = time.monotonic() + _ROUND_SECONDS
    forgotten = 0
    place: Place | None = BEGINNING
    while place is not None and time.monotonic() < until:
        after = place
        some, place = in_transaction(engine, lambda connection: forget_runs(connection, seconds, after, PAGE))  # noqa: B023
        forgotten += some
    in_transaction(engine, lambda connection: forget_gone(connection, _GONE_SECONDS))
    if forgotten:
        logger.info(Event("retention", forgotten=forgotten))
    return {"forgotten": forgotten}


def examination(settings: Settings | None = None, engine: Engine | None = None) -> dict[str, object]:
    """Have the doctor judge every row, unless somebody did a short time ago, and note what was found for ``mneme status``.

    Raises:
        StorageError: the database is out of reach.
    """
    settings = settings or get_settings()
    engine = engine or get_engine(settings)
    often = settings.schedules.doctor_seconds
    if not in_transaction(engine, lambda connection: take_examination(connection, often)):
        return {"examined": False}
    findings = diagnose(engine, settings)
    broken = in_transaction(engine, lambda connection: note_examination(connection, findings))
    if broken:
        logger.error(Event("the doctor found broken rules, run `mneme doctor`", rules=" ".join(broken)))
    return {"examined": True, "broken": broken}
