"""The command in a process of its own that need not load its libraries anew: a forked copy of one that has.

On a small machine a thousand commands spend more time on imports than on everything else. What depends on how Python itself is
started (its encoding, say) is run by ``exec`` all the same, and so is all that is sent a signal.
"""

import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_LOADED = [
    "worker.cli", "models", "tasks", "tasks.sweep", "tasks.repair", "tasks.openai_client", "tasks.backfill", "worker.lifecycle",
    "worker.metrics_server", "worker.metrics", "models.doctor", "models.importing", "models.listing", "models.status",
    "kombu.transport.redis", "sqlalchemy.dialects.postgresql.psycopg",
]  # fmt: skip
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(_LOADED)


def may_be_forked(command: list[str], environ: Mapping[str, str]) -> bool:
    """Whether it is the command of this very environment, and what it is given says nothing to Python itself."""
    own = Path(sys.executable).parent / "mneme"
    return Path(command[0]) == own and not any(name.startswith(("LANG", "LC_", "PYTHON")) for name in environ)


def run_forked(
    command: list[str], environ: Mapping[str, str], cwd: Path, timeout_seconds: float
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        process = _server.Process(target=_become, args=(command, dict(environ), str(cwd), str(out), str(err)))
        process.start()
        process.join(timeout_seconds)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout_seconds)
        code = process.exitcode
        process.close()
        assert code is not None
        return subprocess.CompletedProcess(command, code, out.read_text(), err.read_text())


def _become(command: list[str], environ: Mapping[str, str], cwd: str, out: str, err: str) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    for path, number in ((os.devnull, 0), (out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8")
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), "utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", write_through=True)
    sys.argv = command
    from worker.cli import main

    main()
