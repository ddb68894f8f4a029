"""Publishing to the broker: a hint that a session may be due. Losing one loses no work."""

import os
import ssl
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

# Kombu would import its transport at the first message, which in a script that ends at once is too late: the
# interpreter is then shutting down, and refuses what the import does.
import kombu.transport.redis  # noqa: F401
from celery import Celery
from kombu.exceptions import OperationalError
from kombu.utils.url import parse_url

from models.errors import BrokerError, SettingsError
from models.settings import Settings

QUEUE = "mneme"
JOB = "mneme.job"
SWEEP = "mneme.sweep"
REPAIR = "mneme.repair"
RETENTION = "mneme.retention"
DOCTOR = "mneme.doctor"

_LONGEST_REASON = 200  # characters


_making = Lock()


def broker_tls(url: str) -> dict[str, Any] | None:
    """Return how the broker's certificate is checked: against the machine's authorities, unless the URL says otherwise.

    Kombu checks none without being told. Flower wants to be told in any case.

    Args:
        url: of the broker; ``?ssl_ca_certs=/path`` names another authority, ``ssl_cert_reqs=CERT_NONE`` trusts anybody.

    Returns:
        What Celery takes as ``broker_use_ssl``; None without TLS.

    Raises:
        SettingsError: an option has a value that there is not, or names a file that cannot be read.
    """
    if urlsplit(url).scheme != "rediss":
        return None
    try:
        asked = {"ssl_cert_reqs": ssl.CERT_REQUIRED, **(parse_url(url).get("ssl") or {})}
    except (KeyError, ValueError):
        raise SettingsError("broker.url: ssl_cert_reqs: expected CERT_REQUIRED, CERT_OPTIONAL or CERT_NONE") from None
    for option in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
        try:
            if option in asked:
                Path(asked[option]).read_bytes()
        except OSError as error:
            # To redis it would be a broker that is away, and is waited for.
            raise SettingsError(f"broker.url: {option}: {asked[option]} cannot be read: {error.strerror}") from None
    return asked


def get_producer(settings: Settings) -> Celery:
    """Return an app that only sends, and gives up soon.

    With a frozen Redis, ``send_task`` blocks for ever by default; so its sockets have short timeouts and nothing is
    retried.

    Raises:
        SettingsError: no broker is set.
    """
    with _making:
        return _make_once(settings)


@cache
def _make_once(settings: Settings) -> Celery:
    producer = Celery("mneme-producer", broker=settings.require_broker_url(), set_as_current=False)
    producer.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=QUEUE,
        task_send_sent_event=True,  # Flower shows a job from its sending on
        task_ignore_result=True,
        task_publish_retry=False,
        broker_use_ssl=broker_tls(settings.require_broker_url()),
        broker_connection_timeout=2,
        broker_transport_options={
            "socket_timeout": 2,
            "socket_connect_timeout": 2,
            "socket_keepalive": True,
            "retry_on_timeout": False,
            "max_retries": 0,
        },
    )
    return producer


def _forget_producers() -> None:
    """Make new ones in a forked child: the locks of the old ones may be held there for ever."""
    global _making  # noqa: PLW0603 - a lock that was held while the process forked is of no use
    _making = Lock()
    _make_once.cache_clear()


os.register_at_fork(after_in_child=_forget_producers)


def publish(settings: Settings, session_id: str) -> None:
    """Put a job for the session onto the queue, now.

    Raises:
        BrokerError: the broker did not take it within a few seconds.
        SettingsError: no broker is set.
    """
    try:
        get_producer(settings).send_task(JOB, kwargs={"session_id": session_id}, queue=QUEUE, retry=False)
    except (OperationalError, OSError) as error:
        raise BrokerError(
            f"session {session_id!r}: the broker took no job ({_reason(error)}); the sweep will enqueue it"
        ) from None


def queue_length(settings: Settings) -> int:
    """Return how many messages wait in the queue.

    Raises:
        BrokerError: the broker did not say so within a few seconds.
        SettingsError: no broker is set.
    """
    try:
        with get_producer(settings).connection_for_read() as connection:
            channel: Any = connection.default_channel
            return int(channel.queue_declare(QUEUE).message_count)
    except (OperationalError, OSError) as error:
        raise BrokerError(f"the broker did not tell the length of its queue: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Say in one short line what the broker's client said: a refused connection and a refused password are mended apart."""
    said = str(error).splitlines()
    return said[0][:_LONGEST_REASON] if said else type(error).__name__


def publish_many(settings: Settings, session_ids: Iterable[str], *, seconds: float) -> int:
    """Put a job for each session onto the queue, until the broker refuses one or the time is up.

    Args:
        settings: where the broker is.
        session_ids: the sessions.
        seconds: after so long no further one is begun; the last may take the few seconds of the broker's timeouts.

    Returns:
        How many the broker took; the sweep finds the others.

    Raises:
        SettingsError: no broker is set.
    """
    until = time.monotonic() + seconds
    taken = 0
    for session_id in session_ids:
        if time.monotonic() > until:
            break
        try:
            publish(settings, session_id)
        except BrokerError:
            break
        taken += 1
    return taken
