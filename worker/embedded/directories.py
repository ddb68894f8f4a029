"""The directory of a stack: the user's, or a temporary one of which nothing stays, even when its owner was killed."""

import os
import shutil
import tempfile
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from models.errors import MnemeError, SettingsError

_PREFIX = "mneme-up-"
_STALE_SECONDS = 600.0
"""Younger ones may be about to be locked."""


@contextmanager
def data_directory(chosen: Path | None) -> Iterator[Path]:
    """Give the chosen directory, else a temporary one that is removed at the end; those of killed owners are removed first."""
    if chosen is not None:
        yield chosen
        return
    _remove_stale()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def lock(directory: Path) -> int:
    """Make the directory if it is not there, and take it for this process; return what holds it, to be closed.

    Raises:
        SettingsError: it cannot be one.
        MnemeError: another process has it.
    """
    # What holds none of these can be a path of a server's option, a URL and a line.
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in str(directory)):
        raise SettingsError(f"{str(directory)!r}: expected a data directory without control characters, named in UTF-8")
    try:
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        held = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise SettingsError(f"the data directory {directory} cannot be used: {error.strerror}") from None
    if _take(held):
        return held
    os.close(held)
    raise MnemeError(f"{directory} is in use by another `mneme up`")


def _take(held: int) -> bool:
    """Lock it: on the directory itself, so that no lock file is left whatever becomes of us."""
    try:
        flock(held, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return True


def _remove_stale() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = directory.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _STALE_SECONDS:
                continue
            held = os.open(directory, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                if _take(held):
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(held)
