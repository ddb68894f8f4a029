"""A real Postgres and a real Redis for the tests, from programs on the machine, gone when the tests are gone.

Each server runs in the foreground as our child, told by the kernel to stop when we die, so that even a killed test run
leaves nothing behind.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis


class MissingProgram(Exception):
    """A server's program is not on this machine."""


def find_program(*names: str) -> str:
    """Return the path of the first program found, on the PATH or among Debian's versions of Postgres, newest first."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, versions)])
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    raise MissingProgram(f"the tests need {' or '.join(names)}: install Postgres 14+ and Redis (or Valkey)")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def as_other_user(directory: Path) -> list[str]:
    """Return what to put before a command that refuses to run as root."""
    if os.geteuid() != 0:
        return []
    unshare = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
        return unshare
    shutil.chown(directory, "nobody")
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@contextmanager
def child(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that must not outlive us."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def dies_with_us(signal_name: str) -> list[str]:
    """Return what to put before a command that the kernel is to end when we die; nothing where that is unknown."""
    # Behind any change of user: the kernel forgets it when a process changes its user.
    return ["setpriv", "--pdeathsig", signal_name] if shutil.which("setpriv") else []


class Postgres:
    """A Postgres of the tests' own: ``url(database)``, ``restart()``."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._data = directory / "data"
        self._log = directory / "postgres.log"
        self._prefix = as_other_user(directory)
        self._stop: Iterator[None] | None = None
        initdb = [
            find_program("initdb"),
            "-D",
            str(self._data),
            "-U",
            "owner",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        done = subprocess.run([*self._prefix, *initdb, "--no-sync"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr}")

    def command(self) -> list[str]:
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "200",
            "timezone": "Asia/Kathmandu",  # nothing may depend on the server's zone being UTC
            "deadlock_timeout": "200ms",
        }
        settings = [f"-c{name}={value}" for name, value in options.items()]
        return [
            *self._prefix,
            *dies_with_us("INT"),
            find_program("postgres"),
            "-D",
            str(self._data),
            f"-p{self.port}",
            *settings,
        ]

    @contextmanager
    def running(self) -> Iterator["Postgres"]:
        with child(self.command(), self._log):
            for _ in range(200):
                try:
                    psycopg.connect(self.url("postgres"), connect_timeout=2).close()
                    break
                except psycopg.OperationalError:
                    time.sleep(0.05)
            else:
                raise RuntimeError(f"Postgres did not start: {self._log.read_text()[-2000:]}")
            yield self

    def url(self, database: str, user: str = "owner") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    with (
        tempfile.TemporaryDirectory(prefix="mneme-test-pg-") as directory,
        Postgres(Path(directory)).running() as server,
    ):
        yield server


@contextmanager
def redis_server() -> Iterator[str]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="mneme-test-redis-") as directory:
        program = find_program("valkey-server", "redis-server")
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
        with child([*dies_with_us("INT"), program, *options], Path(directory) / "redis.log"):
            client = redis.Redis(port=port)
            for _ in range(200):
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.05)
            client.close()
            yield f"redis://127.0.0.1:{port}/0"
