"""The whole of mneme on one machine: servers, worker, beat and Flower, started in order and stopped in the reverse one."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from models.engine import make_engine
from models.errors import BrokerError, MnemeError, StorageError
from models.migrate import migrate
from models.settings import EXTRACT, Settings, load_settings, settings_file
from tasks.broker import queue_length
from worker.embedded.children import Child, start
from worker.embedded.directories import lock
from worker.embedded.programs import find_postgres, find_redis, has_flower
from worker.embedded.servers import socket_directory, start_postgres, start_redis

_POSTGRES_PORT, _REDIS_PORT = 54_320, 63_790  # near the usual ones, and not in the way of a server of the machine's
_WORKER_SECONDS = 30.0
_PATIENCE_SECONDS = {"worker": 20.0, "postgres": 30.0}


@dataclass
class Stack:
    """Servers, worker, beat and Flower as children of this process. A context manager: leaving it stops them all.

    Args:
        data: the directory that keeps the data and the logs; made if it is not there. One stack at a time may use it.
        environ: the settings; addresses of servers in them are used instead of servers of our own.
        tell: called with a line for each thing that is up.
        flower: whether to start Flower, if it is installed.
        tcp: whether its servers listen on the loopback too, for clients that know no unix sockets. Without a password: for
            every user of this machine.

    Raises:
        SettingsError: settings that are wrong, or programs that are not there.
        MnemeError: something did not start, or another stack uses the directory.
    """

    data: Path
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    tell: Callable[[str], None] = lambda _: None
    flower: bool = True
    tcp: bool = False
    children: list[Child] = field(default_factory=list)
    settings: Settings = field(default_factory=Settings)
    addresses: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> "Stack":
        """Start everything; what had started is stopped again when something does not."""
        self.data = self.data.absolute()
        self._lock = lock(self.data)
        self._places = ExitStack()
        try:
            self._start_servers()
            self._start_celery()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything, the last first."""
        while self.children:
            child = self.children.pop()
            child.stop(_PATIENCE_SECONDS.get(child.name, 10.0))
        self._places.close()
        os.close(self._lock)

    def wait_for_worker(self) -> None:
        """Wait until the worker takes jobs; at most half a minute.

        Raises:
            MnemeError: it ended.
        """
        worker = next(child for child in self.children if child.name == "worker")
        until = time.monotonic() + _WORKER_SECONDS
        while b" ready." not in worker.said() and time.monotonic() < until:
            if worker.has_ended:
                raise MnemeError(f"the worker did not start, its log {worker.log} ends with:\n{worker.last_lines()}")
            time.sleep(0.05)

    def ended(self) -> Child | None:
        """Return a child that has ended by itself, if there is one."""
        return next((child for child in self.children if child.has_ended), None)

    def _start_servers(self) -> None:
        """Start the servers whose addresses the settings do not give, and bring the schema up to date."""
        given = load_settings(self.environ)
        added = {"MNEME_CONFIG": str(settings_file(self.environ).absolute())}
        source = given.embedded.servers
        sockets = self._sockets = self._places.enter_context(socket_directory(self.data))
        database, broker = (None if _leads_to(sockets, url) else url for url in (given.database.url, given.broker.url))
        if database is None and source != "environment":
            port = _free_port(_POSTGRES_PORT) if self.tcp else None
            listen = {"listen_addresses": "127.0.0.1", "port": str(port)} if port else {}
            child, url = start_postgres(find_postgres(source), self.data, sockets, listen)
            self.children.append(child)
            added["DATABASE_URL"] = f"postgresql://postgres@127.0.0.1:{port}/mneme" if port else url
        if broker is None and source != "environment":
            port = _free_port(_REDIS_PORT) if self.tcp else None
            listen = {"port": str(port), "bind": "127.0.0.1"} if port else {}
            child, url = start_redis(find_redis(source), self.data, sockets, listen)
            self.children.append(child)
            added["REDIS_URL"] = f"redis://127.0.0.1:{port}/0" if port else url
        if given.llm.model is None:
            added["MNEME_LLM__MODEL"] = EXTRACT
        self.environ = {**self.environ, **added}
        self.addresses = {name: added[name] for name in ("DATABASE_URL", "REDIS_URL") if name in added}
        self.settings = load_settings(self.environ)
        for name, variable in (("Postgres", "DATABASE_URL"), ("Redis", "REDIS_URL")):
            self.tell(f"{name:<9} {added.get(variable, f'as given by {variable} or the settings')}")
        self._check_servers(added)

    def _check_servers(self, added: Mapping[str, str]) -> None:
        """Bring the schema up to date, and see that the broker answers: what was given may be of yesterday."""
        engine = make_engine(self.settings.require_database_url(), pooled=False)
        try:
            migrate(engine)
        except StorageError as error:
            own = "" if "DATABASE_URL" in added else "; without DATABASE_URL mneme starts a Postgres of its own"
            raise StorageError(f"{error}{own}") from None
        self.settings.require_broker_url()
        try:
            queue_length(self.settings)
        except BrokerError as error:
            own = "" if "REDIS_URL" in added else "; without REDIS_URL mneme starts a Redis of its own"
            raise BrokerError(f"{error}{own}") from None

    def _start_celery(self) -> None:
        # Cut off rather than ended politely when we are killed: its servers go away at the same moment.
        self._celery("worker", "worker", "--loglevel", "info", orphan_signal=signal.SIGQUIT)
        self.tell(f"worker    {self.settings.worker.concurrency} folds at once, model {self.settings.llm.model}")
        self._celery("beat", "beat", "--loglevel", "info")
        self.tell(f"beat      sweeps every {self.settings.schedules.sweep_seconds:g} s")
        if not self.flower:
            return
        if has_flower():
            port = _free_port(self.settings.embedded.flower_port)
            self._celery("flower", "flower", "--address=127.0.0.1", f"--port={port}")
            self.tell(f"Flower    http://127.0.0.1:{port}")
        else:
            self.tell("Flower    not installed: pip install flower")

    def _celery(self, name: str, *arguments: str, orphan_signal: signal.Signals = signal.SIGTERM) -> None:
        program = [sys.executable, "-m", "celery", "-A", "worker", *arguments]
        # Celery looks for the package "worker" in its working directory first, and anybody's may have one of that name.
        child = start(
            name, program, self.data / f"{name}.log",
            stop_signal=signal.SIGTERM, orphan_signal=orphan_signal, environ=self.environ, cwd=self._sockets,
        )  # fmt: skip
        self.children.append(child)


def _leads_to(sockets: Path, url: str | None) -> bool:
    """Say whether a URL is that of a server of this very stack, pasted into the shell when it last ran."""
    return url is not None and str(sockets) in unquote(url)


def _free_port(wanted: int) -> int:
    """Return the wanted port of this machine, or another one if that is taken."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise MnemeError("this machine has no free port")
