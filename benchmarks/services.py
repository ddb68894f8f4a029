"""Postgres, Redis, workers and beat of one rehearsal, on addresses that stay the same when a server is started again."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg

from models import load_settings
from tests.support.servers import free_port
from worker.embedded.children import Child, start
from worker.embedded.programs import find_postgres, find_redis
from worker.embedded.servers import start_postgres, start_redis

LEASE_SECONDS = 8.0
QUICK = {
    "MNEME_LLM__MODEL": "moody", "MNEME_LLM__TIMEOUT_SECONDS": "3", "MNEME_MNEME__LEASE_SECONDS": f"{LEASE_SECONDS}",
    "MNEME_SCHEDULES__SWEEP_SECONDS": "1", "MNEME_SCHEDULES__GRACE_SECONDS": "1", "MNEME_SCHEDULES__REQUEUE_SECONDS": "3",
    "MNEME_DATABASE__POOL_SIZE": "3", "MNEME_WORKER__CONCURRENCY": "6",
}  # fmt: skip
"""What makes minutes seconds. Settings that every release knows: an unknown one stops a worker at its start."""

# Says in the log of the very process which code it runs: an editable installation must not stand in for another release.
_CELERY = """
import runpy, models
print("code of", models.__file__, flush=True)
runpy.run_module("celery", run_name="__main__", alter_sys=True)
"""
_COMMAND = "import sys; sys.argv[0] = 'mneme'; from worker.cli import main; main()"


class Services:
    """What runs, by name. Started and stopped from the main thread: the kernel ends children with the thread.

    Args:
        directory: where data and logs are.
        sockets: a private directory with a short path.
        model_url: whom the workers ask.
        settings: environment variables beyond those that make it quick.
        user: whom the workers connect as.
    """

    def __init__(
        self,
        directory: Path,
        sockets: Path,
        model_url: str,
        settings: Mapping[str, str] | None = None,
        user: str = "postgres",
    ) -> None:
        self.directory, self.sockets = directory, sockets
        self.ports = {"postgres": free_port(), "redis": free_port()}
        self.children: dict[str, Child] = {}
        self.environ: dict[str, str] = {**os.environ, **QUICK, **(settings or {})} | {
            "DATABASE_URL": self.url(user),
            "REDIS_URL": f"redis://127.0.0.1:{self.ports['redis']}/0",
            "OPENAI_BASE_URL": model_url,
        }  # fmt: skip
        self.settings = load_settings(self.environ)

    def url(self, user: str, database: str = "mneme") -> str:
        """Return where a role finds a database."""
        return f"postgresql://{user}@127.0.0.1:{self.ports['postgres']}/{database}"

    def execute(self, *statements: str, database: str = "mneme") -> None:
        """Run statements as the superuser."""
        with psycopg.connect(self.url("postgres", database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def start_postgres(self) -> None:
        """Start Postgres, with new data where there is none."""
        options = {"listen_addresses": "127.0.0.1", "port": str(self.ports["postgres"]), "max_connections": "200"}
        self.children["postgres"] = start_postgres(find_postgres("auto"), self.directory, self.sockets, options)[0]

    def start_redis(self) -> None:
        """Start Redis on what it has kept."""
        options = {"port": str(self.ports["redis"]), "bind": "127.0.0.1"}
        self.children["redis"] = start_redis(find_redis("auto"), self.directory, self.sockets, options)[0]

    def start_celery(self, name: str, release: Path | None = None) -> Child:
        """Start a beat, if it is called so, else a worker; of the release in that directory, by default this one."""
        named = ["worker", "-n", f"{name}@{self.directory.name}", "--without-mingle", "--without-gossip"]
        what = ["beat"] if name.startswith("beat") else named
        program = [sys.executable, "-c", _CELERY, "-A", "worker", *what, "-l", "info"]
        return self.start_program(name, program, release)

    def start_program(self, name: str, program: list[str], release: Path | None = None) -> Child:
        """Start a program of a release, with the environment of a worker."""
        self.children[name] = start(
            name,
            program,
            self.directory / f"{name}.log",
            stop_signal=signal.SIGTERM,
            orphan_signal=signal.SIGKILL,
            environ=self.environ_of(release),
            cwd=release,
        )
        return self.children[name]

    def environ_of(self, release: Path | None) -> dict[str, str]:
        """Return the environment in which a release's packages come before those that are installed."""
        before = {"PYTHONPATH": f"{release}{os.pathsep}{release / 'client'}"} if release else {}
        return self.environ | before

    @staticmethod
    def command(*arguments: str) -> list[str]:
        """Return the ``mneme`` command of whichever release it is run in."""
        return [sys.executable, "-c", _COMMAND, *arguments]

    def stop(self) -> None:
        """Stop everything: all others at once, then the servers."""
        running = {name: child for name, child in self.children.items() if not child.has_ended}
        servers = [running.pop(name) for name in ("postgres", "redis") if name in running]
        for child in (*running.values(), *servers):
            child.process.send_signal(signal.SIGCONT)
        for child in running.values():
            child.process.send_signal(child.stop_signal)
        for child in running.values():
            _wait(child, 20)
        for child in servers:
            child.stop(20)


def _wait(child: Child, patience_seconds: float) -> None:
    # Asked once: a second SIGTERM would be a cold shutdown.
    try:
        child.process.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        child.kill_group()
