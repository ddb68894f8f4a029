"""The metrics of ``mneme metrics``, for Prometheus: all of them from the rows, so one server tells of every worker.

What stands now is read at each scrape. Counters begin at nought with this process, as Prometheus expects it of a process that
was restarted, and grow by the runs that ended since the last scrape; a reading costs what is new, not the history.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine

from models.breaker import server_of
from models.engine import transaction
from models.errors import BrokerError, StorageError
from models.metrics import LAG_SECONDS, ended_between, settled_until
from models.settings import Settings
from models.status import Status, Waiting, read_status
from tasks.broker import queue_length

logger = logging.getLogger("mneme.metrics")

SECONDS_BUCKETS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, float("inf"))
_REASONS = ("crashes", "too_large", "content", "declined", "restored")
_KINDS_OF_FAILURE = ("transient", "configuration", "content", "too_long")
_ENDINGS = [(state, "") for state in ("succeeded", "declined", "expired", "released", "cancelled")] + [
    ("failed", kind) for kind in _KINDS_OF_FAILURE
]


class Counters:
    """What happened since this process began."""

    def __init__(self, settings: Settings) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, of which the first one's start already tells
        registry = self.registry = CollectorRegistry()
        self._settings = settings
        self._runs = Counter("mneme_runs", "Runs that ended.", ["state", "kind", "work"], registry=registry)
        self._calls = Counter("mneme_llm_calls", "Calls of the model.", registry=registry)
        self._tokens = Counter("mneme_tokens", "Tokens spent.", ["kind"], registry=registry)
        self._cost = Counter("mneme_cost", "What they cost, by the prices in the settings.", registry=registry)
        self._seconds = Histogram(
            "mneme_fold_seconds",
            "From claim to commit, of runs that made a node.",
            registry=registry,
            buckets=SECONDS_BUCKETS,
        )
        self._rescued = Counter(
            "mneme_sweep_rescued", "Sessions that a sweep enqueued and of which no message had told.", registry=registry
        )
        # Without its noughts a counter's first step is seen by no rate.
        for state, kind in _ENDINGS:
            self._runs.labels(state, kind, "fold")
        for kind in ("prompt", "completion"):
            self._tokens.labels(kind)
        self._until: datetime | None = None
        self._rescued_before: int | None = None

    def read(self, connection: Connection, lag_seconds: float) -> None:
        """Count what ended since the last reading."""
        until = settled_until(connection, lag_seconds)
        endings = ended_between(connection, self._until, until) if self._until is not None else []
        self._until = until
        for ended in endings:
            self._runs.labels(ended.state, ended.kind, "repair" if ended.repair else "fold").inc(ended.runs)
            self._calls.inc(ended.llm_calls)
            self._tokens.labels("prompt").inc(ended.prompt_tokens)
            self._tokens.labels("completion").inc(ended.completion_tokens)
            prices = self._settings.spend
            cost = ended.prompt_tokens * prices.prompt_price + ended.completion_tokens * prices.completion_price
            self._cost.inc(cost / 1_000_000)
            for seconds in ended.seconds if ended.state == "succeeded" and not ended.repair else ():
                self._seconds.observe(seconds)

    def note_rescued(self, rescued: int) -> None:
        """Count what the sweeps have counted since the last reading."""
        if self._rescued_before is not None:
            self._rescued.inc(max(0, rescued - self._rescued_before))
        self._rescued_before = rescued


class Metrics(Collector):
    """Reads the rows at each scrape. A database that is out of reach makes ``mneme_database_up`` 0, and nothing else is told.

    Args:
        settings: thresholds, caps and prices.
        engine: where.
        lag_seconds: counters are behind by so much.
    """

    def __init__(self, settings: Settings, engine: Engine, *, lag_seconds: float = LAG_SECONDS) -> None:
        self._settings, self._lag_seconds = settings, lag_seconds
        self._engine = engine.execution_options(isolation_level="REPEATABLE READ")
        self._counters = Counters(settings)
        self._one_at_a_time = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as they are now."""
        with self._one_at_a_time:
            try:
                with transaction(self._engine, statement_seconds=30) as connection:
                    settings = self._settings
                    found = read_status(connection, settings.mneme, server_of(settings), settings.spend)
                    self._counters.read(connection, self._lag_seconds)
            except StorageError as error:
                logger.warning("the metrics could not be read: %s", error)
                yield _gauge("mneme_database_up", "Whether Postgres answered.", 0)
                return
            self._counters.note_rescued(found.service.rescued)
            yield _gauge("mneme_database_up", "Whether Postgres answered.", 1)
            yield from _waiting(found)
            yield from _service(found)
            yield from _spend(found, settings)
            yield from _queue(settings)
            yield from self._counters.registry.collect()


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _labelled(name: str, what: str, label: str, values: Mapping[str, float]) -> Metric:
    metric = GaugeMetricFamily(name, what, labels=[label])
    for name_of_one, value in values.items():
        metric.add_metric([name_of_one], value)
    return metric


def _waiting(found: Status) -> Iterator[Metric]:
    holds = ("due", "already_running", "backing_off", "paused", "held")
    by_hold = {hold: found.waiting.get(hold, Waiting()) for hold in holds}
    parts: list[tuple[str, str, Callable[[Waiting], float]]] = [
        (
            "mneme_waiting_sessions",
            "Sessions with enough to fold, by what holds them; due: nothing.",
            lambda w: w.sessions,
        ),
        ("mneme_waiting_nodes", "Uncovered nodes of these sessions.", lambda w: w.nodes),
        (
            "mneme_waiting_seconds",
            "For how long the first of these sessions has been due.",
            lambda w: w.waiting_seconds,
        ),
    ]
    for name, what, value in parts:
        yield _labelled(name, what, "hold", {hold: value(waiting) for hold, waiting in by_hold.items()})
    oldest = max((waiting.oldest_seconds for waiting in found.waiting.values()), default=0.0)
    yield _gauge(
        "mneme_oldest_uncovered_seconds", "Age of the oldest uncovered node of a session with enough to fold.", oldest
    )
    yield _gauge("mneme_running_runs", "Runs under way.", found.running)
    yield _gauge("mneme_dead_runs", "Runs whose lease has passed, until the next sweep.", found.dead)
    retried = {kind.kind: kind.runs for kind in found.backing_off}
    yield _labelled(
        "mneme_backing_off_runs", "Runs to be tried again later, by the kind of their failure.", "kind", retried
    )


def _service(found: Status) -> Iterator[Metric]:
    service = found.service
    dismissed = dict.fromkeys(_REASONS, 0) | {each.reason: each.nodes for each in found.dismissed}
    yield _labelled("mneme_dismissed_nodes", "Nodes that were given up, by reason.", "reason", dismissed)
    yield _gauge("mneme_degraded_nodes", "Extracts in place of a model's answer, to be redone.", found.degraded.nodes)
    breakers = GaugeMetricFamily("mneme_breaker_open", "Whether all calls are on hold.", labels=["model", "server"])
    for breaker in found.breakers:
        breakers.add_metric([breaker.model, breaker.base_url], breaker.open)
    yield breakers
    yield _gauge("mneme_paused", "Whether everything is paused.", service.paused)
    yield _gauge("mneme_paused_sessions", "Sessions that are paused by name.", service.paused_sessions)
    alive = [worker for worker in found.workers if worker.alive]
    yield _gauge("mneme_workers", "Workers that wrote lately that they are there.", len(alive))
    yield _gauge("mneme_worker_slots", "How many folds they make at once.", sum(worker.slots for worker in alive))
    if service.swept_seconds is not None:
        yield _gauge("mneme_swept_seconds", "For how long no worker has swept at beat's word.", service.swept_seconds)
    if service.examined_seconds is not None:
        yield _gauge(
            "mneme_examined_seconds", "For how long the doctor has not examined the rows.", service.examined_seconds
        )
        yield _gauge("mneme_doctor_violations", "Rows that break a rule, as the doctor last found.", service.violations)


def _spend(found: Status, settings: Settings) -> Iterator[Metric]:
    spent, spend = found.spent, settings.spend
    tokens = {
        "hour": spent.hour_prompt_tokens + spent.hour_completion_tokens,
        "day": spent.day_prompt_tokens + spent.day_completion_tokens,
    }
    yield _labelled("mneme_spent_tokens", "Tokens spent in the last hour, and in the last 24.", "window", tokens)
    caps = {"hour": spend.tokens_per_hour, "day": spend.tokens_per_day}
    yield _labelled("mneme_cap_tokens", "The caps on them; none where nought.", "window", caps)


def _queue(settings: Settings) -> Iterator[Metric]:
    if settings.broker.url is None:
        return
    try:
        messages = queue_length(settings)
    except BrokerError:
        yield _gauge("mneme_broker_up", "Whether the broker answered.", 0)
        return
    yield _gauge("mneme_broker_up", "Whether the broker answered.", 1)
    yield _gauge("mneme_queue_messages", "Messages that wait in the queue.", messages)
