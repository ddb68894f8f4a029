"""Postgres, Redis, four workers and beat, each of which may be killed, frozen and started again."""

import signal
import time
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path

import psycopg
import redis

from benchmarks.chaos.schedule import Fault, Kind
from benchmarks.services import LEASE_SECONDS, Services
from models import make_engine, migrate

WORKERS = 4


class Stack(Services):
    """Everything that runs, and what goes wrong with it.

    Args: as for ``Services``.
    """

    def __init__(self, directory: Path, sockets: Path, model_url: str) -> None:
        super().__init__(directory, sockets, model_url, {"MNEME_LLM__BREAKER_SECONDS": "2"})
        self.injected: Counter[str] = Counter()
        self._ended_by_us: set[int] = set()
        self.ended_by_themselves: list[str] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []

    def start(self) -> None:
        """Start servers, schema, workers and beat."""
        self.start_postgres()
        self.start_redis()
        engine = make_engine(self.settings.require_database_url(), pooled=False)
        migrate(engine)
        for number in range(WORKERS):
            self.start_celery(f"worker{number}")
        self.start_celery("beat")

    def look_after(self) -> None:
        """Do what is to be done by now, and start again whatever has died."""
        while self._later and self._later[0][0] <= time.monotonic():
            heappop(self._later)[2]()
        for name, child in list(self.children.items()):
            if child.has_ended and name not in ("postgres", "redis", "beat2"):
                if child.process.pid not in self._ended_by_us:
                    self.ended_by_themselves.append(f"{name} ({child.process.returncode})")
                self.start_celery(name)

    def calm_down(self) -> None:
        """Undo every fault that lasts, and do what was put off."""
        while self._later:
            time.sleep(max(0.0, self._later[0][0] - time.monotonic()))
            heappop(self._later)[2]()
        self.look_after()

    def inject(self, fault: Fault) -> None:
        """Make one thing go wrong."""
        self.injected[fault.kind] += 1
        worker = f"worker{fault.target}"
        how: dict[Kind, Callable[[], None]] = {
            "kill a worker": lambda: self._signal(worker, signal.SIGKILL),
            "freeze a worker past its lease": lambda: self._freeze(worker, LEASE_SECONDS + 3),
            "stop a worker politely": lambda: self._signal(worker, signal.SIGTERM),
            "cut a worker off": lambda: self._signal(worker, signal.SIGQUIT),
            "kill beat": lambda: self._signal("beat", signal.SIGKILL),
            "a second beat": self._second_beat,
            "empty redis": lambda: self._empty_redis(fault),
            "kill redis": lambda: self._again("redis", signal.SIGKILL, self.start_redis, 1.0),
            "freeze redis": lambda: self._freeze("redis", 4),
            "restart postgres": lambda: self._again("postgres", signal.SIGINT, self.start_postgres, 2.0),
            # At once and without a checkpoint: what was committed is in its log, and nothing else.
            "kill postgres": lambda: self._again("postgres", signal.SIGQUIT, self.start_postgres, 1.0),
            "end connections": lambda: self._end_connections(fault),
        }
        how[fault.kind]()

    # -------------------------------------------------------------------------------------------- how

    def _signal(self, name: str, number: signal.Signals) -> None:
        if not self.children[name].has_ended:
            self.children[name].process.send_signal(number)
            if number not in (signal.SIGSTOP, signal.SIGCONT):
                self._ended_by_us.add(self.children[name].process.pid)

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        heappush(self._later, (time.monotonic() + seconds, id(what), what))

    def _freeze(self, name: str, seconds: float) -> None:
        frozen = self.children[name]
        self._signal(name, signal.SIGSTOP)
        self._after(seconds, lambda: None if frozen.has_ended else frozen.process.send_signal(signal.SIGCONT))

    def _again(self, name: str, how: signal.Signals, begin: Callable[[], None], seconds: float) -> None:
        child = self.children[name]
        if child.has_ended:  # it is on its way back already
            return
        child.process.send_signal(signal.SIGCONT)
        child.process.send_signal(how)
        child.process.wait(30)
        self._after(seconds, begin)

    def _second_beat(self) -> None:
        if "beat2" in self.children:
            return
        self.start_celery("beat2")
        self._after(6, lambda: self.children.pop("beat2").stop(10))

    def _empty_redis(self, fault: Fault) -> None:
        try:
            with redis.Redis(port=self.ports["redis"], socket_timeout=2) as client:
                client.flushall()
        except redis.RedisError:
            self._once_more(fault)

    def _once_more(self, fault: Fault) -> None:
        """Put off what could not be done, since the server was down or frozen just then."""
        self.injected[fault.kind] -= 1
        self._after(2, lambda: self.inject(fault))

    def _end_connections(self, fault: Fault) -> None:
        end = (
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'mneme' and pid <> pg_backend_pid()"
        )
        url = self.settings.require_database_url().replace("+psycopg", "")
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
                connection.execute(end)
        except psycopg.OperationalError:
            self._once_more(fault)
