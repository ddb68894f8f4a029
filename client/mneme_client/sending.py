"""Which broker hints go to, and sending one."""

import os
from urllib.parse import urlsplit

from mneme_client.errors import ConfigurationError
from mneme_client.outbox import outbox
from mneme_client.requests import check_session_id

_EXPECTED = "expected a URL such as redis://host:6379/0, rediss://host:6379/0 or redis+socket:///path/to.sock"
_configured: str | None = None


def configure(*, broker_url: str | None) -> None:
    """Set the broker that mneme's worker listens to, for this process; without it, ``REDIS_URL`` says so.

    Args:
        broker_url: the URL of a Redis-compatible server, or None to go back to ``REDIS_URL``.

    Raises:
        ConfigurationError: it is no such URL.
    """
    global _configured  # noqa: PLW0603 - a setting of the process, like the variable that it stands in for
    _configured = None if broker_url is None else _checked(broker_url, "broker_url")


def enqueue(session_id: str) -> bool:
    """Ask mneme's worker to look at the session, without waiting for the broker. Call it after the commit.

    Needed after a write on a plain connection (psycopg's, SQLAlchemy's ``Connection``), which tells nobody of its commit.
    After a write on a SQLAlchemy session or on Django's connection it happens by itself. It may be called once too often,
    and from a coroutine too: there is nothing to await.

    Args:
        session_id: the session, 1 to 255 bytes.

    Returns:
        Whether the hint was taken; if not, a warning is logged, and the worker's sweep finds the session.

    Raises:
        InvalidInput: it is no session id.
        ConfigurationError: no broker is set, or its URL is none.
    """
    return outbox.put(_broker_url(), check_session_id(session_id))


def enqueue_committed(session_id: str) -> None:
    """Send a session that was written to. What is committed is committed: this never raises, and leaves it to the sweep."""
    try:
        enqueue(session_id)
    except ConfigurationError as error:
        outbox.warn(str(error))


def _broker_url() -> str:
    if _configured is not None:
        return _configured
    from_environment = os.environ.get("REDIS_URL", "")
    if not from_environment.strip():
        raise ConfigurationError("no broker is set: set REDIS_URL, or call mneme_client.configure(broker_url=...)")
    return _checked(from_environment, "REDIS_URL")


def _checked(url: str, name: str) -> str:
    """Return the URL if it can be one. It is never shown: it may hold a password."""
    try:
        parts = urlsplit(url.strip())
        valid = parts.port != 0
    except (ValueError, AttributeError):
        raise ConfigurationError(f"{name}: {_EXPECTED}") from None
    if valid and (
        (parts.scheme in ("redis", "rediss") and parts.hostname)
        or (parts.scheme == "redis+socket" and parts.path.strip("/"))
    ):
        return url.strip()
    raise ConfigurationError(f"{name}: {_EXPECTED}")
