"""What the commands of rehearsals have in common: a directory that is kept only where something failed, and an exit code."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from models import MnemeError
from worker.commands.up import Stopped, signals_raise
from worker.embedded.servers import socket_directory

Tell = Callable[[str], None]


class Report:
    """An outcome that tells why it does not hold; prints as its lines, and then that."""

    @property
    def failures(self) -> list[str]:
        """Why it does not hold; empty when it does."""
        raise NotImplementedError

    @property
    def lines(self) -> list[str]:
        """What is printed before the judgement."""
        raise NotImplementedError

    @property
    def holds(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    def __str__(self) -> str:
        """Return the lines to be printed."""
        return "\n".join([*self.lines, f"FAILED: {'; '.join(self.failures)}" if self.failures else "holds"])


class Result(Protocol):
    """What came of a rehearsal: prints as its report."""

    @property
    def holds(self) -> bool:
        """Whether it is as it should be."""


def rehearse(name: str, run: Callable[[Path, Path, Tell], Result]) -> int:
    """Run a rehearsal in a new directory and another one for sockets, print its report, and return the exit code."""
    directory = Path(tempfile.mkdtemp(prefix=f"mneme-{name}-"))
    try:
        with signals_raise(), socket_directory(directory) as sockets:
            outcome = run(directory, sockets, lambda line: print(line, file=sys.stderr, flush=True))
    except Stopped:
        shutil.rmtree(directory, ignore_errors=True)
        return 130
    except (MnemeError, RuntimeError, TimeoutError, AssertionError) as error:
        print(f"FAILED: {error}")
        print(f"data and logs are kept in {directory}", file=sys.stderr)
        return 1
    except BaseException:
        print(f"data and logs are kept in {directory}", file=sys.stderr)
        raise
    print(outcome)
    if not outcome.holds:
        print(f"data and logs are kept in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0
