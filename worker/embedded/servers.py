"""A Postgres and a Redis-compatible server of our own, on unix sockets in a private directory."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import redis

from models.errors import MnemeError, SettingsError
from worker.embedded.children import Child, not_root, start
from worker.embedded.programs import PostgresPrograms

START_SECONDS = 30.0
_LONGEST_SOCKET_DIRECTORY = 80  # a socket's path may have 107 bytes
_USER, _DATABASE = "postgres", "mneme"


@contextmanager
def socket_directory(data: Path) -> Iterator[Path]:
    """Give a private directory with a short path: in the data directory, else a temporary one, removed at the end."""
    directory = data / "run"
    if len(os.fsencode(directory)) <= _LONGEST_SOCKET_DIRECTORY:
        directory.mkdir(mode=0o700, exist_ok=True)
        yield directory
        return
    # $TMPDIR may be long too (that of macOS is); /tmp is not.
    usual = tempfile.gettempdir()
    place = usual if len(os.fsencode(usual)) < _LONGEST_SOCKET_DIRECTORY / 2 else "/tmp"  # noqa: S108 - made private
    with tempfile.TemporaryDirectory(prefix="mneme-run-", dir=place, ignore_cleanup_errors=True) as short:
        yield Path(short)


def start_postgres(
    programs: PostgresPrograms, data: Path, sockets: Path, more: Mapping[str, str] | None = None
) -> tuple[Child, str]:
    """Start Postgres on its data below ``data``, made at the first time; return it and the URL of its database.

    Args:
        programs: which Postgres.
        data: where its data and its log are.
        sockets: where its socket is to be.
        more: settings of Postgres beyond those it needs here, or instead of them.

    Raises:
        SettingsError: the data is of another version than the programs.
        MnemeError: it did not start.
    """
    directory, log = data / "postgres", data / "postgres.log"
    _initialise(programs, directory, log)
    options = {"listen_addresses": "", "unix_socket_directories": str(sockets), "unix_socket_permissions": "0700"}
    options |= more or {}
    settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
    child = start(
        "postgres",
        [programs.postgres, "-D", str(directory), *settings],
        log,
        stop_signal=signal.SIGINT,
        user=not_root(),
    )

    where = {"host": str(sockets), "port": options.get("port", "5432"), "user": _USER, "dbname": "postgres"}

    def ready() -> None:
        with psycopg.connect(autocommit=True, connect_timeout=5, **where) as admin:  # type: ignore[arg-type]
            if not admin.execute("select 1 from pg_database where datname = %s", [_DATABASE]).fetchone():
                admin.execute(f"create database {_DATABASE}".encode())

    _wait_until_ready(child, ready, psycopg.OperationalError)
    return child, f"postgresql://{_USER}@/{_DATABASE}?host={quote(str(sockets))}"


def start_redis(program: str, data: Path, sockets: Path, more: Mapping[str, str] | None = None) -> tuple[Child, str]:
    """Start a Redis-compatible server that keeps its data below ``data``; return it and its URL.

    Args: as for ``start_postgres``.

    Raises:
        MnemeError: it did not start.
    """
    directory, socket = data / "redis", sockets / "redis.sock"
    directory.mkdir(mode=0o700, exist_ok=True)
    options = {
        "port": "0", "unixsocket": str(socket), "unixsocketperm": "700", "dir": str(directory), "appendonly": "yes",
        "save": "", "maxmemory-policy": "noeviction", "daemonize": "no",
    }  # fmt: skip
    options |= more or {}
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    child = start("redis", [program, *arguments], data / "redis.log", stop_signal=signal.SIGTERM)

    def ready() -> None:
        with redis.Redis(unix_socket_path=str(socket)) as client:
            client.ping()

    _wait_until_ready(child, ready, redis.ConnectionError)
    return child, f"redis+socket://{quote(str(socket))}"


def _initialise(programs: PostgresPrograms, directory: Path, log: Path) -> None:
    version = directory / "PG_VERSION"
    if version.is_file():
        found = version.read_text(encoding="ascii").strip()
        if found != str(programs.major_version):
            raise SettingsError(
                f"{directory} was made by Postgres {found} and the programs found are of version"
                f" {programs.major_version}: choose another data directory, or set embedded.servers"
            )
        return
    if directory.exists() and any(directory.iterdir()):
        raise SettingsError(f"{directory} holds something that is no data of Postgres: choose another data directory")
    # Made elsewhere and moved: what is at its place is whole, whenever we are killed. What a killed one left may still be
    # in the hands of its initdb, so each has a name of its own.
    for left in directory.parent.glob(f"{directory.name}.new-*"):
        shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=f"{directory.name}.new-", dir=directory.parent))
    if not_root() == "nobody":
        shutil.chown(new, "nobody")
    initdb = [programs.initdb, "-D", str(new), "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-locale"]
    child = start("initdb", initdb, log, stop_signal=signal.SIGTERM, user=not_root())
    try:
        failed = child.process.wait() != 0
    except BaseException:
        # With all that it started, which would otherwise go on writing where we clean up.
        child.kill_group()
        shutil.rmtree(new, ignore_errors=True)
        raise
    if failed:
        said = child.last_lines(3)
        shutil.rmtree(new, ignore_errors=True)
        raise MnemeError(f"Postgres could not set up its data in {directory}: {said}")
    new.rename(directory)


def _wait_until_ready(child: Child, ready: Callable[[], None], not_yet: type[Exception]) -> None:
    """Wait until a server answers.

    Raises:
        MnemeError: it ended, or did not answer in time; the message has the end of its log.
    """
    until = time.monotonic() + START_SECONDS
    try:
        while True:
            try:
                return ready()
            except not_yet as error:
                if child.has_ended or time.monotonic() > until:
                    said = child.last_lines()
                    raise MnemeError(
                        f"{child.name} did not start: {error}\nIts log {child.log} ends with:\n{said}"
                    ) from None
            time.sleep(0.05)
    except BaseException:
        child.stop(10)
        raise
