"""The Celery app: ``celery -A worker worker``, ``celery -A worker beat``, ``celery -A worker flower``.

Importing this module reads the settings and, when they are wrong, ends the process with exit code 2 and one sentence.
"""

from celery import Celery

from models.settings import Settings, get_settings
from tasks.broker import DOCTOR, QUEUE, REPAIR, RETENTION, SWEEP, broker_tls
from worker import channel, lifecycle, logs
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
        worker_consumer="worker.alive:Consumer",
        worker_concurrency=settings.worker.concurrency,
        timezone="UTC",
        broker_use_ssl=broker_tls(settings.require_broker_url()),
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
        beat_scheduler="worker.alive:Scheduler",
        beat_max_loop_interval=10,
        beat_schedule=_schedule(settings),
    )
    return app


def _schedule(settings: Settings) -> dict[str, dict[str, object]]:
    """Return what beat sends, and how often; a message that no worker took before the next one expires."""
    schedules = settings.schedules
    often = {SWEEP: schedules.sweep_seconds, RETENTION: schedules.retention_seconds}
    if schedules.repair_tokens_per_day:
        often[REPAIR] = schedules.repair_seconds
    if schedules.doctor_seconds:
        often[DOCTOR] = schedules.doctor_seconds
    return {
        task: {"task": task, "schedule": seconds, "options": {"queue": QUEUE, "expires": seconds}}
        for task, seconds in often.items()
    }


channel.use()
logs.connect()
app = or_exit(lambda: make_app(get_settings()))
lifecycle.connect(app)
