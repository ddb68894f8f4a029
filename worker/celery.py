"""The Celery app: ``celery -A worker worker``, ``celery -A worker beat``, ``celery -A worker flower``.

Importing this module reads the settings and, when they are wrong, ends the process with exit code 2 and one sentence.
"""

from celery import Celery

from models.settings import Settings, get_settings
from tasks.broker import QUEUE, REPAIR, SWEEP
from worker import channel, lifecycle
from worker.exits import or_exit

_POOLS = {"threads": "worker.threads:TaskPool"}


def make_app(settings: Settings) -> Celery:
    """Return the app for these settings.

    Nothing secret goes into its configuration but the broker's URL: Flower masks the password of that key alone.

    Raises:
        SettingsError: no broker is set.
    """
    app = Celery("mneme", broker=settings.require_broker_url(), include=["tasks.jobs"])
    app.conf.update(
        # JSON alone, in and out: pickle left in accept_content is remote code execution.
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        task_default_queue=QUEUE,
        # No result backend: the truth is in Postgres, and nothing grows without end in Redis. Flower lives on events.
        task_ignore_result=True,
        worker_send_task_events=True,
        task_send_sent_event=True,
        # A message is acknowledged when its job has ended. One that is lost or delivered twice does no harm: the sweep
        # finds the rows, and the second delivery finds the lease.
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_pool=_POOLS.get(settings.worker.pool, settings.worker.pool),
        worker_concurrency=settings.worker.concurrency,
        timezone="UTC",
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # Without a socket timeout a worker never comes back from a half-open connection.
        broker_transport_options={
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "visibility_timeout": max(3600, int(2 * settings.mneme.lease_seconds)),
        },
        # In memory: nothing is lost with a schedule that only knows "every so many seconds", and no writable place is
        # needed. Messages that nobody took within their interval are not worth keeping.
        beat_scheduler="celery.beat:Scheduler",
        beat_schedule={
            "sweep": {
                "task": SWEEP,
                "schedule": settings.schedules.sweep_seconds,
                "options": {"queue": QUEUE, "expires": settings.schedules.sweep_seconds},
            },
            **_repairs(settings),
        },
    )
    return app


def _repairs(settings: Settings) -> dict[str, dict[str, object]]:
    """Return the periodic repair, unless it may cost nothing."""
    schedules = settings.schedules
    if schedules.repair_tokens_per_day == 0:
        return {}
    options = {"queue": QUEUE, "expires": schedules.repair_seconds}
    return {"repair": {"task": REPAIR, "schedule": schedules.repair_seconds, "options": options}}


channel.use()
app = or_exit(lambda: make_app(get_settings()))
lifecycle.connect(app)
