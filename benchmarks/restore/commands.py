"""The operator's commands, as docs/upgrading.md tells them."""

import subprocess
from pathlib import Path

from worker.embedded.programs import find_postgres


def _program(name: str) -> str:
    return str(Path(find_postgres("auto").postgres).with_name(name))


def dump(url: str, file: Path) -> None:
    """Back the schema up, with its owner and its grants, while everything goes on.

    Raises:
        RuntimeError: it failed.
    """
    _succeed([_program("pg_dump"), "--format=custom", "--schema=mneme", f"--file={file}", url])


def restore(url: str, file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Restore it in one transaction, so that workers that are there see all of it or nothing."""
    program = [
        _program("pg_restore"),
        "--single-transaction",
        "--exit-on-error",
        *options,
        f"--dbname={url}",
        str(file),
    ]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def restored(url: str, file: Path, *options: str) -> None:
    """Restore it.

    Raises:
        RuntimeError: it failed.
    """
    done = restore(url, file, *options)
    if done.returncode:
        raise RuntimeError(f"pg_restore {' '.join(options)} ended with {done.returncode}: {done.stderr}")


def _succeed(program: list[str]) -> None:
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{Path(program[0]).name} ended with {done.returncode}: {done.stderr}")
