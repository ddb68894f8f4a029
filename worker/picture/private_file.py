"""A file that only its owner may read, and that is whole or not there at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from models.errors import SettingsError
from worker.terminal import typed, visible


def write_private_file(path: str, content: bytes) -> None:
    """Write a file of mode 0600, in place of one that may be there.

    A reader finds the old file or the new one, never a part of it. A symbolic link is followed, so that it stays one.

    Args:
        path: where; its directory must exist.
        content: what.

    Raises:
        SettingsError: there is no such directory, nothing may be written in it, or the path is that of something else than
            a file, such as a directory or a device.
        OSError: the writing itself failed, on a full disk for one; the old file is still there.
    """
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isfile(target):
        raise SettingsError(f"cannot write there: {typed(path)} is not a file")
    try:
        number, temporary = tempfile.mkstemp(prefix=".mneme-", suffix=".tmp", dir=target.parent)  # of mode 0600
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SettingsError(f"cannot write there: {visible(str(target.parent))}: {why}") from None
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
