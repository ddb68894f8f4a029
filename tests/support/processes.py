"""Real processes of the product: workers, beat, Flower, the command. Ended by their own process group, never by name."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.commands import may_be_forked, run_forked
from tests.support.servers import dies_with_us

ROOT = Path(__file__).resolve().parents[2]


class Process:
    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self.log_path = log

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def send(self, number: int) -> None:
        """Send a signal to the process and all its children."""
        os.killpg(self.popen.pid, number)

    def wait_for_log(self, text: str, timeout_seconds: float = 60) -> None:
        wait_until(lambda: text in self.log or self.popen.poll() is not None, timeout_seconds, f"{text!r} in the log")
        assert text in self.log, self.log

    def stop(self) -> None:
        if self.popen.poll() is None:
            self.send(signal.SIGCONT)
            self.popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(15)
        with suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self.popen.wait()


def wait_until(condition: Callable[[], object], timeout_seconds: float = 20, what: str = "the condition") -> None:
    until = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited {timeout_seconds} s in vain for {what}")
        time.sleep(0.05)


def clean_environ(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "SYSTEMROOT")}
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}


@contextmanager
def process(command: list[str], environ: Mapping[str, str], log: Path, cwd: Path = ROOT) -> Iterator[Process]:
    with log.open("ab") as output:
        popen = subprocess.Popen(
            [*dies_with_us("KILL"), *command],
            stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            env=clean_environ(environ), cwd=cwd, start_new_session=True,
        )  # fmt: skip
    running = Process(popen, log)
    try:
        yield running
    finally:
        running.stop()


def celery(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", "worker", *arguments]


def debugged_worker(environ: Mapping[str, str], log: Path, *arguments: str) -> AbstractContextManager[Process]:
    """Return a worker whose log tells the outcome of every job (see ``results``), that it had nothing to do too."""
    return celery_worker(environ, log, "-l", "debug", *arguments)


@contextmanager
def celery_worker(environ: Mapping[str, str], log: Path, *arguments: str) -> Iterator[Process]:
    command = celery(
        "worker", "--without-mingle", "--without-gossip", "-l", "info", "-n", f"{log.stem}@test", *arguments
    )
    with process(command, environ, log) as worker:
        worker.wait_for_log(" ready.")
        yield worker


def run(
    command: list[str], environ: Mapping[str, str], cwd: Path = ROOT, timeout_seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    if may_be_forked(command, environ):
        return run_forked(command, clean_environ(environ), cwd, timeout_seconds)
    return subprocess.run(
        command,
        env=clean_environ(environ),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        stdin=subprocess.DEVNULL,
    )


def log_lines(log: str) -> list[dict[str, Any]]:
    """Return the events of a log in JSON; what Celery prints at its start is none."""
    return [json.loads(line) for line in log.splitlines() if line.startswith("{") and line.endswith("}")]


def results(log: str) -> list[dict[str, Any]]:
    """Return what Celery says in a worker's log that the jobs returned."""
    found = re.findall(r"Task mneme\.job\[[^]]+\] succeeded in [^:]+: (\{.*?\})\"", log)
    return [ast.literal_eval(text) for text in found]


def mneme(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).parent / "mneme"), *arguments]
