"""Telling the workers of sessions, for the commands that make some due."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from models.runs import Count

PUBLISH_SECONDS = 30.0

IN_THE_WAY = {
    "paused": "it, or everything, is paused: mneme status",
    "held": "it is held by the breaker or a cap on spending: mneme status",
    "backing_off": "it failed, and waits to be tried again: mneme retry",
}


def publish_or_leave(engine: "Engine", session_ids: list[str]) -> int:
    """Tell the workers, if a broker is set; whom they are not told of the sweep finds. Return how many they were told of."""
    from models.engine import in_transaction
    from models.retrying import not_published
    from models.settings import get_settings
    from tasks.broker import publish_many

    settings = get_settings()
    published = 0 if settings.broker.url is None else publish_many(settings, session_ids, seconds=PUBLISH_SECONDS)
    if left := session_ids[published:]:
        in_transaction(engine, lambda connection: not_published(connection, left))
    return published


def holding(engine: "Engine", counts: "Sequence[Count]") -> dict[str, str]:
    """Return, for each counted session that is due and will not be folded now all the same, what is ``IN_THE_WAY``."""
    from models.engine import in_transaction
    from models.holds import held_back
    from models.settings import get_settings

    held = in_transaction(engine, lambda connection: held_back(connection, counts, get_settings()))
    return {session_id: hold for session_id, hold in held.items() if hold in IN_THE_WAY}
