"""Telling the workers of sessions, for the commands that make some due."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

PUBLISH_SECONDS = 30.0


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
