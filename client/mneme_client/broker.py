"""The one message that mneme's worker understands, and a connection that gives up soon."""

import ssl
from functools import cache
from urllib.parse import urlsplit

# Kombu would import its transport at the first message, which in a script that ends at once is too late: the
# interpreter is then shutting down, and refuses what the import does.
import kombu.transport.redis  # noqa: F401
from celery import Celery
from kombu import Connection

QUEUE = "mneme"
JOB = "mneme.job"
TIMEOUT_SECONDS = 2


@cache
def _app() -> Celery:
    # Not the current app, and no fixups: with DJANGO_SETTINGS_MODULE set, one of them would import the main app's settings.
    app = Celery("mneme-client", set_as_current=False, fixups=[])
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=QUEUE,
        task_send_sent_event=True,  # Flower shows a job from its sending on
        task_ignore_result=True,
        task_publish_retry=False,
        broker_connection_timeout=TIMEOUT_SECONDS,
        broker_transport_options={
            "socket_timeout": TIMEOUT_SECONDS,
            "socket_connect_timeout": TIMEOUT_SECONDS,
            "socket_keepalive": True,
            "retry_on_timeout": False,
            "max_retries": 0,
        },
    )
    return app


def forget() -> None:
    """Make a new app at the next message: in a forked child, the locks of the old one may be held for ever."""
    _app.cache_clear()


def connect(broker_url: str) -> Connection:
    """Return a connection to the broker, opened at the first message.

    The URL is given to the connection and not to the app's settings: there Celery lets CELERY_BROKER_URL, which is the
    main app's own broker, override it.
    """
    # Without being told, Kombu takes any certificate. What the URL says of it goes before this.
    tls = {"ssl_cert_reqs": ssl.CERT_REQUIRED} if urlsplit(broker_url).scheme == "rediss" else None
    return _app().connection_for_write(broker_url, ssl=tls)


def send(connection: Connection, session_id: str) -> None:
    """Put a job for the session onto the queue, now, or raise what Celery, Kombu or redis raise."""
    _app().send_task(JOB, kwargs={"session_id": session_id}, queue=QUEUE, retry=False, connection=connection)
