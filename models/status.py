"""The status of the whole service, read from the rows in one transaction, in the terms in which claim and sweep decide."""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row

from models import status_sql as sql
from models.breaker import Server
from models.presence import WorkerSeen, workers_seen
from models.settings import NO_CAPS, MnemeSettings, SpendSettings


@dataclass(frozen=True)
class Waiting:
    """Sessions with enough to fold, by what holds them: ``due`` (nothing does), or an outcome of a claim.

    ``waiting_seconds`` is for how long the one that became due first has been so, ``oldest_seconds`` the age of the oldest
    of their nodes, ``first`` the ids of up to three sessions, the longest waiting first; ``cap`` the cap on spending that
    holds some of them, by its name in the settings, if one does.
    """

    sessions: int = 0
    nodes: int = 0
    waiting_seconds: float = 0.0
    oldest_seconds: float = 0.0
    first: tuple[str, ...] = ()
    cap: str | None = None


@dataclass(frozen=True)
class BackingOff:
    """Runs to be tried again later, by the kind of their failure, with the most frequent error of that kind."""

    kind: str
    runs: int
    error: str | None
    longest_seconds: float


@dataclass(frozen=True)
class Dismissed:
    """How many nodes were given up for a reason; ``first`` is (node id, session id) of the newest three."""

    reason: str
    nodes: int
    first: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Degraded:
    """How many extracts wait to be redone; ``first`` is (node id, session id) of the newest three."""

    nodes: int = 0
    first: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Breaker:
    """The breaker of a server that failed lately.

    ``open`` says whether calls are on hold, ``seconds_left`` for how long yet (negative: a call is let through to try),
    ``probing`` whether that call is under way, ``failures`` how many there were in a row, ``ours`` whether it is the one that
    these settings ask.
    """

    base_url: str
    model: str
    failures: int
    error: str | None
    open: bool
    seconds_left: float | None
    probing: bool
    ours: bool


@dataclass(frozen=True)
class Spent:
    """Folds made and tokens spent, in the last hour and in the last 24."""

    hour_folds: int = 0
    hour_prompt_tokens: int = 0
    hour_completion_tokens: int = 0
    day_folds: int = 0
    day_prompt_tokens: int = 0
    day_completion_tokens: int = 0


@dataclass(frozen=True)
class Service:
    """The service as a whole.

    ``schema`` is the revision of the database's schema, ``rescued`` how many sessions sweeps enqueued of which no message had
    told: the sign of lost messages, and of main apps that send none.

    ``paused`` is whether everything is, ``paused_sessions`` how many are by themselves; ``swept_seconds`` for how long no
    worker has swept at beat's word (None: none ever did), ``swept_by`` which one did; ``examined_seconds`` for how long the
    doctor has not examined the rows (None: it never did), beside what it found then.
    """

    paused: bool = False
    paused_sessions: int = 0
    swept_seconds: float | None = None
    swept_by: str | None = None
    examined_seconds: float | None = None
    broken_rules: tuple[str, ...] = ()
    violations: int = 0
    schema: str = ""
    rescued: int = 0


@dataclass(frozen=True)
class Status:
    """All of it.

    ``degraded`` are the extracts that stand in place of a model's answer.

    ``waiting`` has a key for each of *due*, *already_running*, *backing_off*, *paused*, *held* that occurs; ``ended_seconds``
    is for how long no run has ended, None if none ever did.
    """

    waiting: dict[str, Waiting] = field(default_factory=dict)
    running: int = 0
    dead: int = 0
    ended_seconds: float | None = None
    backing_off: tuple[BackingOff, ...] = ()
    dismissed: tuple[Dismissed, ...] = ()
    degraded: Degraded = Degraded()
    breakers: tuple[Breaker, ...] = ()
    spent: Spent = Spent()
    service: Service = Service()
    workers: tuple[WorkerSeen, ...] = ()


def read_status(
    connection: Connection, settings: MnemeSettings, server: Server, spend: SpendSettings = NO_CAPS
) -> Status:
    """Read the status.

    The cost grows with what waits to be folded and what was dismissed, not with what was folded.

    Args:
        connection: in a transaction; *repeatable read* makes the figures agree with one another.
        settings: threshold and levels.
        server: whom the workers ask, whose breaker may hold what is due.
        spend: the caps, which may hold it too.
    """
    which = {"threshold": settings.l2_snapshot_threshold, "max_level": settings.max_level}
    waiting = {
        row.hold: Waiting(row.sessions, row.nodes, row.waiting_seconds, row.oldest_seconds, tuple(row.first), row.cap)
        for row in connection.execute(sql.DUE, which | server.key | spend.caps)
    }
    runs = connection.execute(sql.RUNNING).one()
    degraded = connection.execute(sql.DEGRADED).one()
    return Status(
        waiting=waiting,
        running=runs.running,
        dead=runs.dead,
        ended_seconds=runs.ended_seconds,
        backing_off=tuple(BackingOff(**row._mapping) for row in connection.execute(sql.BACKING_OFF)),
        dismissed=tuple(
            Dismissed(row.reason, row.nodes, tuple((node, session) for node, session in row.first or ()))
            for row in connection.execute(sql.DISMISSED)
        ),
        degraded=Degraded(degraded.nodes, tuple((node, session) for node, session in degraded.first or ())),
        breakers=tuple(Breaker(**row._mapping) for row in connection.execute(sql.BREAKERS, server.key)),
        spent=Spent(**connection.execute(sql.SPENT).one()._mapping),
        service=_service(connection.execute(sql.SERVICE).one_or_none()),
        workers=workers_seen(connection),
    )


def _service(row: Row[Any] | None) -> Service:
    if row is None:
        return Service()
    return Service(**{**row._mapping, "broken_rules": tuple(row.broken_rules or ()), "violations": row.violations or 0})
