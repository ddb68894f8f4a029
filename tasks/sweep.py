"""The sweep: what no message told us, the rows do."""

import logging
import time
from dataclasses import asdict, dataclass

from sqlalchemy import Engine

from models.breaker import server_of
from models.engine import get_engine, in_transaction, transaction
from models.errors import BrokerError, StorageError
from models.settings import Settings, get_settings
from models.sweeping import Swept, Taken, expire_leases, give_back, note_rescued, note_sweep, sweep_once, unmark_if_time
from tasks.broker import publish, queue_length
from tasks.events import Event

logger = logging.getLogger("mneme.sweep")

FULL_COUNT_SECONDS = 60.0


@dataclass(frozen=True)
class SweepReport:
    """How many runs were closed, nodes marked as seen, and sessions enqueued; ``unmarked`` after a count of everything."""

    expired: int
    enqueued: int
    marked: int
    unmarked: int | None

    def as_result(self) -> dict[str, object]:
        """Return the report as plain values."""
        return asdict(self)


def sweep(settings: Settings | None = None, engine: Engine | None = None, *, by: str | None = None) -> SweepReport:
    """Close runs whose lease has passed, and enqueue the sessions that are due and held by nothing.

    Rounds follow one another while there is more, for at most the half of ``schedules.sweep_seconds``.

    Args:
        settings: bounds.
        engine: where.
        by: the worker that beat had do this, as a sign that both are alive; None for a sweep by hand.

    Raises:
        StorageError: the database is out of reach.
    """
    settings = settings or get_settings()
    engine = engine or get_engine(settings)
    until = time.monotonic() + settings.schedules.sweep_seconds / 2
    if by is not None:
        in_transaction(engine, lambda connection: note_sweep(connection, by))
    expired = in_transaction(engine, lambda connection: expire_leases(connection, settings.schedules.sweep_batch))
    unmarked = _count_everything(settings, engine)
    enqueued = marked = rescued = 0
    room = _room(settings)
    more = True
    while more and time.monotonic() < until:
        swept = _round(settings, engine, room - enqueued)
        published = _publish(settings, engine, swept.taken)
        enqueued += published
        rescued += sum(not session.retry for session in swept.taken[:published])
        marked += swept.marked
        more = swept.more and published == len(swept.taken) and (published > 0 or swept.marked > 0)
    if rescued:
        in_transaction(engine, lambda connection: note_rescued(connection, rescued))
    if expired or enqueued:
        logger.info(Event("sweep", expired=expired, enqueued=enqueued, marked=marked))
    return SweepReport(expired, enqueued, marked, unmarked)


def _count_everything(settings: Settings, engine: Engine) -> int | None:
    """Make everything that is due findable, if it is time; what is new is looked at whether that succeeds or not."""
    try:
        with transaction(engine, statement_seconds=FULL_COUNT_SECONDS) as connection:
            return unmark_if_time(connection, settings.mneme, settings.schedules)
    except StorageError as error:
        logger.warning("not everything could be counted, the next sweep tries again: %s", error)
        return None


def _round(settings: Settings, engine: Engine, room: int) -> Swept:
    server = server_of(settings)
    return in_transaction(
        engine,
        lambda c: sweep_once(c, settings.mneme, settings.schedules, server, room=room, spend=settings.spend),
    )


def _room(settings: Settings) -> int:
    """Return how many sessions may be enqueued: a queue that the workers do not keep up with is not filled with copies."""
    try:
        return max(0, settings.schedules.sweep_batch - queue_length(settings))
    except BrokerError as error:
        logger.warning("nothing is enqueued, the next sweep tries again: %s", error)
        return 0


def _publish(settings: Settings, engine: Engine, taken: list[Taken]) -> int:
    """Publish the taken sessions; with the first that the broker refuses, the rest is given back for the next sweep."""
    for position, session in enumerate(taken):
        try:
            publish(settings, session.session_id)
        except BrokerError as error:
            logger.warning("%s", error)
            with transaction(engine) as connection:
                for unpublished in taken[position:]:
                    give_back(connection, unpublished)
            return position
    return len(taken)
