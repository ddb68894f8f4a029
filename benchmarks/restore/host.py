"""Losing the hosts of Postgres and Redis with all that is on them, and new ones at the same addresses."""

import ctypes
import shutil
from pathlib import Path

from benchmarks.services import Services

_IPC_RMID = 0


def lose(services: Services) -> None:
    """Kill both servers and delete their data."""
    data = services.directory / "postgres"
    segment = _shared_memory(data)
    services.children["postgres"].process.kill()
    services.children["redis"].process.kill()
    services.children["postgres"].process.wait()
    services.children["redis"].process.wait()
    # A backend may still be writing: what it makes in a directory that is going is deleted at the second time.
    for directory in (data, data, services.directory / "redis"):
        shutil.rmtree(directory, ignore_errors=True)
    # A killed Postgres leaves it behind; with its host it would be gone.
    ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)


def replace(services: Services) -> None:
    """Start an empty Postgres and an empty Redis where the lost ones were."""
    services.start_redis()
    services.start_postgres()


def _shared_memory(data: Path) -> int:
    """Return the id of the segment that Postgres notes in the seventh line of its file."""
    return int((data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[6].split()[1])
