"""Child processes that never outlive us: told by the kernel when we are killed, ended in turn when we stop."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

User = Literal["as_is", "namespace", "nobody"]

_LAUNCH = str(Path(__file__).with_name("launch.py"))


@cache
def not_root() -> User:
    """Return as whom to run what refuses to run as root: as we are if we are not, else in a user namespace, else nobody."""
    if os.geteuid() != 0:
        return "as_is"
    true = command([shutil.which("true") or "/bin/true"], orphan_signal=signal.SIGTERM, user="namespace")
    return "namespace" if subprocess.run(true, capture_output=True, check=False).returncode == 0 else "nobody"


@dataclass
class Child:
    """One running child; ``stop_signal`` asks it to end by itself, ``log_begins`` is where its part of the log does."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    stop_signal: signal.Signals
    log_begins: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether it is gone."""
        return self.process.poll() is not None

    def stop(self, patience_seconds: float) -> None:
        """Ask it to end, wait, and end it by force if it does not."""
        if self.has_ended:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill_group(self) -> None:
        """End it and everything that it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def said(self) -> bytes:
        """Return what it has logged so far, without what those before it did."""
        return self.log.read_bytes()[self.log_begins :]

    def last_lines(self, count: int = 5) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


def command(program: list[str], *, orphan_signal: signal.Signals, user: User = "as_is") -> list[str]:
    """Return the command that becomes ``program``, as that user and with the parent-death signal set."""
    return [sys.executable, "-I", _LAUNCH, str(os.getpid()), orphan_signal.name, user, *program]


def start(
    name: str,
    program: list[str],
    log: Path,
    *,
    stop_signal: signal.Signals,
    orphan_signal: signal.Signals | None = None,
    user: User = "as_is",
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Child:
    """Start a program, from the main thread: the kernel's signal follows the thread that started it.

    Args:
        name: what to call it.
        program: an absolute path and its arguments.
        log: where its output goes, appended.
        stop_signal: what asks it to end.
        orphan_signal: what the kernel sends it when we are killed; by default the same.
        user: as whom, see ``not_root``.
        environ: its environment, by default ours.
        cwd: its working directory, by default ours.
    """
    with log.open("ab") as output:
        begins = output.tell()
        process = subprocess.Popen(
            command(program, orphan_signal=orphan_signal or stop_signal, user=user),
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=environ,
            cwd=cwd,
            start_new_session=True,  # Ctrl-C on the terminal is for us alone; we end them in their order
        )
    return Child(name, log, process, stop_signal, begins)
