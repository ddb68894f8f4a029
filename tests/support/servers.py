"""A real Postgres and a real Redis for the tests, started as ``mneme up`` starts them, gone when the tests are gone.

``MNEME_TEST_SERVERS`` (``auto``, ``machine`` or ``wheel``) says whose programs to use, ``MNEME_TEST_PGBOUNCER`` (anything)
puts a pgbouncer in transaction mode between the tests and Postgres.
"""

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from worker.embedded.children import not_root, start
from worker.embedded.programs import Source, find_postgres, find_redis
from worker.embedded.servers import socket_directory, start_postgres, start_redis

BEHIND_PGBOUNCER = "MNEME_TEST_PGBOUNCER" in os.environ
SOURCE: Source = os.environ.get("MNEME_TEST_SERVERS", "auto")  # type: ignore[assignment]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def dies_with_us(signal_name: str) -> list[str]:
    """Return what to put before a command that the kernel is to end when we die; nothing where that is unknown."""
    return ["setpriv", "--pdeathsig", signal_name] if shutil.which("setpriv") else []


def psql_program() -> str:
    """Return the psql of the machine, else the wheel's."""
    return shutil.which("psql") or str(Path(find_postgres("wheel").postgres).with_name("psql"))


def redis_program() -> str:
    return find_redis(SOURCE)


class Postgres:
    """A Postgres of the tests' own, on a port of the loopback; what is tested reaches it by ``url``, pooler or not."""

    def __init__(self, port: int, pooler_port: int | None = None) -> None:
        self.port = port
        self._url_port = pooler_port or port

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self._url_port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        direct = f"postgresql://postgres@127.0.0.1:{self.port}/{database}"
        with psycopg.connect(direct, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    port = free_port()
    options = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "fsync": "off",
        "max_connections": "200",
        "timezone": "Asia/Kathmandu",  # nothing may depend on the server's zone being UTC
        "deadlock_timeout": "200ms",
    }
    with tempfile.TemporaryDirectory(prefix="mneme-test-pg-") as directory:
        data = Path(directory)
        with socket_directory(data) as sockets:
            child, _ = start_postgres(find_postgres(SOURCE), data, sockets, options)
            try:
                if not BEHIND_PGBOUNCER:
                    yield Postgres(port)
                    return
                with pgbouncer(port, data) as pooler_port:
                    yield Postgres(port, pooler_port)
            finally:
                child.stop(20)


@contextmanager
def pgbouncer(postgres_port: int, data: Path) -> Iterator[int]:
    """Give the port of a pgbouncer in transaction mode, with fewer connections than the tests open."""
    port = free_port()
    config = data / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n* = host=127.0.0.1 port={postgres_port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 8\nunix_socket_dir =\n"
        "max_client_conn = 500\n"
    )
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    log = data / "pgbouncer.log"
    child = start("pgbouncer", [program, str(config)], log, stop_signal=signal.SIGINT, user=not_root())
    try:
        until = time.monotonic() + 10
        while True:
            try:
                psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres").close()
                break
            except psycopg.OperationalError:
                if child.has_ended or time.monotonic() > until:
                    raise AssertionError(child.last_lines()) from None
                time.sleep(0.05)
        yield port
    finally:
        child.stop(10)


@contextmanager
def redis_server() -> Iterator[str]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="mneme-test-redis-") as directory:
        data = Path(directory)
        options = {"port": str(port), "bind": "127.0.0.1", "appendonly": "no"}
        with socket_directory(data) as sockets:
            child, _ = start_redis(redis_program(), data, sockets, options)
            try:
                yield f"redis://127.0.0.1:{port}/0"
            finally:
                child.stop(20)
