"""Main apps that write: through the client, through the store, and in plain SQL. Each goes on until its write is in."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import mneme_client
import psycopg
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from benchmarks.chaos.schedule import Write
from models import MnemeError, NodeExists, SummaryDAGStore, SummaryNode, make_engine
from models.settings import Settings
from tasks import enqueue_on_commit


class Refused(Exception):
    """The snapshot contradicts one that is there."""


@dataclass
class Ledger:
    """What the writers were told is written: (session, number) to content; and how the rest went."""

    written: dict[tuple[str, int], str] = field(default_factory=dict)
    again: int = 0
    late: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    attempts_lost: int = 0


@contextmanager
def by_client(settings: Settings) -> Iterator[Callable[[Write], object]]:
    """Write through ``mneme_client`` on a SQLAlchemy session; it enqueues after the commit."""
    mneme_client.configure(broker_url=settings.require_broker_url())
    engine = make_engine(settings.require_database_url(), pool_size=1)
    new_session = sessionmaker(engine)

    def write(planned: Write) -> object:
        try:
            with new_session.begin() as session:
                return mneme_client.write_snapshot(session, planned.session_id, *planned.span, planned.content)
        except mneme_client.SnapshotConflict:
            raise Refused from None

    yield write
    engine.dispose()


@contextmanager
def by_store(settings: Settings) -> Iterator[Callable[[Write], object]]:
    """Write through ``SummaryDAGStore``, with ``enqueue_on_commit``. A span that is taken by the same text is no error."""
    engine = make_engine(settings.require_database_url(), pool_size=1)
    new_session = sessionmaker(engine)
    enqueue_on_commit(new_session, settings=settings)

    def write(planned: Write) -> object:
        start, end = planned.span
        node = SummaryNode(
            session_id=planned.session_id, level=1, span_start=start, span_end=end, content=planned.content
        )
        try:
            with new_session.begin() as session:
                return SummaryDAGStore(session).insert_node(node).id
        except NodeExists:
            return _by_sql(new_session, planned)  # the store knows no repetition: the function of the contract does

    yield write
    engine.dispose()


def _by_sql(new_session: "sessionmaker[Session]", planned: Write) -> object:
    try:
        with new_session.begin() as session:
            return mneme_client.write_snapshot(session, planned.session_id, *planned.span, planned.content)
    except mneme_client.SnapshotConflict:
        raise Refused from None


@contextmanager
def by_sql(settings: Settings) -> Iterator[Callable[[Write], object]]:
    """Write by the SQL function alone, on a new connection each time, and tell nobody."""
    url = settings.require_database_url().replace("postgresql+psycopg:", "postgresql:")

    def write(planned: Write) -> object:
        try:
            with psycopg.connect(url, connect_timeout=5) as connection:
                call = "select mneme.write_l1_snapshot(%s, %s, %s, %s)"
                return connection.execute(call, [planned.session_id, *planned.span, planned.content]).fetchone()
        except psycopg.errors.UniqueViolation:
            raise Refused from None

    yield write


KINDS = (by_client, by_store, by_sql, by_sql)


class Writer(threading.Thread):
    """One main app: does what its plan says, evenly over the given time."""

    def __init__(
        self,
        writing: AbstractContextManager[Callable[[Write], object]],
        plan: list[Write],
        seconds: float,
        ledger: Ledger,
    ) -> None:
        super().__init__(daemon=True)
        self._writing, self._plan, self._seconds, self._ledger = writing, plan, seconds, ledger

    def run(self) -> None:
        """Write everything; a write that is behind its time is made at once."""
        began = time.monotonic()
        with self._writing as write:
            for position, planned in enumerate(self._plan):
                time.sleep(max(0.0, began + self._seconds * position / len(self._plan) - time.monotonic()))
                self._until_it_is_in(planned, write)

    def _until_it_is_in(self, planned: Write, write: Callable[[Write], object]) -> None:
        while True:
            try:
                write(planned)
            except Refused:
                self._note(planned, refused=True)
                return
            except (SQLAlchemyError, psycopg.Error, MnemeError, mneme_client.MnemeClientError):
                self._ledger.attempts_lost += 1
                time.sleep(0.3)
            else:
                self._note(planned, refused=False)
                return

    def _note(self, planned: Write, *, refused: bool) -> None:
        ledger, key = self._ledger, (planned.session_id, planned.number)
        if refused != (planned.kind == "conflict"):
            ledger.faults.append(f"{planned.kind} of {key} was {'refused' if refused else 'taken'}")
        elif planned.kind == "first":
            ledger.written[key] = planned.content
            ledger.late += planned.late
        elif planned.kind == "again":
            ledger.again += 1
        else:
            ledger.refused += 1


def start(settings: Settings, plans: list[list[Write]], seconds: float) -> tuple[list[Writer], Ledger]:
    """Start a writer for each plan, of each kind in turn."""
    ledger = Ledger()
    writers = [Writer(KINDS[n % len(KINDS)](settings), plan, seconds, ledger) for n, plan in enumerate(plans)]
    for writer in writers:
        writer.start()
    return writers, ledger
