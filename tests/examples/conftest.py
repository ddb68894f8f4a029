"""Running the examples: as servers on a port of their own, and as scripts of Node in a copy with their packages."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import ROOT, clean_environ, process, wait_until

EXAMPLES = ROOT / "examples"


class Server:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def write(self, session_id: str, number: int, content: str | None = None) -> tuple[int, Any]:
        snapshot = {
            "span_start": number * 10 + 1,
            "span_end": number * 10 + 10,
            "content": f"On day {number} table {number} was copied." if content is None else content,
        }
        return self.send(session_id, json.dumps(snapshot).encode())

    def send(self, session_id: str, body: bytes) -> tuple[int, Any]:
        request = urllib.request.Request(
            f"{self._url}/sessions/{session_id}/snapshots", body, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def timed_write(self, session_id: str, number: int) -> float:
        began = time.perf_counter()
        status, _ = self.write(session_id, number)
        assert status == 201
        return time.perf_counter() - began

    def memory(self, session_id: str) -> str:
        with urllib.request.urlopen(f"{self._url}/sessions/{session_id}/memory", timeout=10) as response:
            return str(response.read().decode())

    def memory_status(self, session_id: str, token_budget: str) -> int:
        try:
            address = f"{self._url}/sessions/{session_id}/memory?token_budget={token_budget}"
            with urllib.request.urlopen(address, timeout=10) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code


@contextmanager
def server(command: list[str], port: int, environ: Mapping[str, str], log: Path, cwd: Path) -> Iterator[Server]:
    def listens() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    with process(command, environ, log, cwd=cwd) as running:
        wait_until(lambda: listens() or running.popen.poll() is not None, 30, "the server")
        assert running.popen.poll() is None, running.log
        yield Server(port)


@pytest.fixture
def node_project(tmp_path: Path) -> Callable[[str], Path]:
    """Copy an example of Node and install its packages there."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on this machine")

    def copy(name: str) -> Path:
        directory = tmp_path / name
        shutil.copytree(EXAMPLES / name, directory, ignore=shutil.ignore_patterns("node_modules"))
        kept = {k: v for k, v in os.environ.items() if k.lower().startswith(("npm_", "ssl_", "node_extra_"))}
        install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(
            install, cwd=directory, env=clean_environ(kept), capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stderr
        return directory

    return copy
