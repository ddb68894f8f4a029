"""The code of an older revision, beside this one."""

import io
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class NoRelease(Exception):
    """The history at hand does not hold that revision."""


def unpack(revision: str, directory: Path) -> Path:
    """Write the files of a revision below a directory and return where they are; nothing of it stays in the repository.

    Raises:
        NoRelease: this is no repository, or a shallow copy of one that ends before it.
    """
    try:
        command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision]
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"").decode(errors="replace").strip() or str(error)
        raise NoRelease(f"the git history at hand does not hold {revision}: {said}") from None
    release = directory / "release-before"
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(release, filter="data")
    return release
