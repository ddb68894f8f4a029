"""The liveness file: it proves that the loop turns, of worker and beat, and says nothing of Postgres or the broker."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.broker import own_redis
from tests.support.processes import celery, celery_worker, process, run, wait_until
from worker.lifecycle import _or_end
from worker.systemd import STOPPING, TURNING

PROBE = "find {} -mmin -2 | grep -q ."


def age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def touched_again(path: Path, within_seconds: float) -> None:
    wait_until(path.exists, 60, f"{path} to be made")
    before = path.stat().st_mtime
    wait_until(lambda: path.stat().st_mtime > before, within_seconds, f"{path} to be touched")


def alive(environ: dict[str, str], path: Path) -> dict[str, str]:
    return environ | {"MNEME_WORKER__LIVENESS_FILE": str(path)}


def probe(path: Path) -> int:
    return run(["sh", "-c", PROBE.format(path)], {}).returncode


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens on for a service of Type=notify."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def told(systemd: socket.socket) -> list[str]:
    """Return the messages that wait, and take them."""
    systemd.setblocking(False)
    messages = []
    while True:
        try:
            messages.append(systemd.recv(1000).decode())
        except BlockingIOError:
            return messages


def test_a_worker_is_alive_while_its_loop_turns(
    environ: dict[str, str], broker: redis.Redis, tmp_path: Path, systemd: socket.socket
) -> None:
    path = tmp_path / "alive"
    assert probe(path) != 0
    # Postgres is away: to end the worker would not bring it back.
    away = environ | {"DATABASE_URL": "postgresql://u@127.0.0.1:1/d", "NOTIFY_SOCKET": systemd.getsockname()}
    with celery_worker(alive(away, path), tmp_path / "worker.log") as worker:
        touched_again(path, 15)
        assert probe(path) == 0
        worker.wait_for_log("nothing is folded here while Postgres does not serve this worker: ")
        worker.send(signal.SIGSTOP)
        messages = told(systemd)
        assert TURNING in messages
        assert any(message.startswith("STATUS=waiting for Postgres: ") and "port 1" in message for message in messages)
        time.sleep(7)
        assert age(path) > 6
        assert told(systemd) == []
        os.utime(path, (time.time() - 180,) * 2)
        assert probe(path) != 0
        worker.send(signal.SIGCONT)
        touched_again(path, 15)
        assert TURNING in told(systemd)
        worker.popen.send_signal(signal.SIGTERM)
        assert worker.popen.wait(30) == 0
        assert told(systemd)[-1] == STOPPING


def test_beat_tells_systemd_that_it_is_ready(
    environ: dict[str, str], broker: redis.Redis, tmp_path: Path, systemd: socket.socket
) -> None:
    notified = environ | {"NOTIFY_SOCKET": systemd.getsockname()}
    with process(celery("beat"), notified, tmp_path / "beat.log"):
        assert systemd.recv(1000).decode() == TURNING
        # The first sweep at once, and not after its interval of half a minute.
        wait_until(lambda: "STATUS=sends what is due, mneme.sweep last" in told(systemd))


NOTING = """
import signal
import threading
from worker import logs, presence
presence.NOTE_EVERY_SECONDS = 0.1
logs.set_up()
noted = presence.Presence()
signal.signal(signal.SIGUSR1, lambda *_: noted.begin())
noted.begin()
threading.Event().wait()
"""


def test_the_state_that_systemd_shows_follows_postgres(
    environ: dict[str, str], scalar: Callable[..., Any], tmp_path: Path, systemd: socket.socket
) -> None:
    def state() -> str:
        return (told(systemd) or [""])[-1]

    with process(
        [sys.executable, "-c", NOTING], environ | {"NOTIFY_SOCKET": systemd.getsockname()}, tmp_path / "log"
    ) as noting:
        wait_until(lambda: state() == "STATUS=folds, up to 8 sessions at once")
        scalar("alter table mneme.workers rename to elsewhere")
        wait_until(lambda: state().startswith("STATUS=waiting for Postgres: "))
        wait_until(lambda: noting.log.count("nothing is folded here while Postgres does not serve this worker") > 1)
        scalar("alter table mneme.elsewhere rename to workers")
        wait_until(lambda: state() == "STATUS=folds, up to 8 sessions at once")
        assert "Postgres serves this worker again" in noting.log
        # Said once, for the loop may have something else to say; and again when it has reached its broker again.
        time.sleep(0.5)
        assert told(systemd) == []
        noting.popen.send_signal(signal.SIGUSR1)
        wait_until(lambda: state() == "STATUS=folds, up to 8 sessions at once")


@pytest.mark.parametrize("role", ["worker", "beat"])
def test_what_waits_for_its_broker_is_alive(environ: dict[str, str], tmp_path: Path, role: str) -> None:
    path = tmp_path / "alive"
    with own_redis(tmp_path / "redis.log") as own:
        waiting = alive(environ | {"REDIS_URL": own.url, "MNEME_SCHEDULES__SWEEP_SECONDS": "1"}, path)
        with process(celery(role, "-l", "info"), waiting, tmp_path / "log") as running:
            running.wait_for_log("ready." if role == "worker" else "beat: Starting")
            touched_again(path, 15)
            own.server.send(signal.SIGKILL)
            for _ in range(3):
                touched_again(path, 60)
            assert running.popen.poll() is None
            # Celery's own beat writes a stack at every tick, its worker one at each loss of the connection.
            assert role == "worker" or "Traceback" not in running.log
    with process(celery(role, "-l", "info"), waiting, tmp_path / "log2") as running:  # now it is away from the start
        for _ in range(3):
            touched_again(path, 60)
        assert running.popen.poll() is None


@pytest.mark.parametrize("role", ["worker", "beat"])
def test_a_file_that_cannot_be_written_is_refused_at_the_start(
    environ: dict[str, str], broker: redis.Redis, role: str
) -> None:
    done = run(celery(role), alive(environ, Path("/proc/alive")))
    assert done.returncode == 2
    assert "mneme: worker.liveness_file: /proc/alive: it cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(celery(role), alive(environ, Path("/tmp")))
    assert done.returncode == 2
    assert "mneme: worker.liveness_file: /tmp: it is a directory" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can take its own rights away")
@pytest.mark.parametrize("role", ["worker", "beat"])
def test_a_file_in_a_directory_of_somebody_else_is_refused_at_the_start(
    environ: dict[str, str], broker: redis.Redis, tmp_path: Path, role: str
) -> None:
    """Celery logs what a handler of its signals raises, and goes on: such a worker had started unchecked."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    os.chown(closed, 65534, 65534)
    done = run(["setpriv", "--bounding-set=-all", *celery(role)], alive(environ, closed / "alive"))
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"mneme: worker.liveness_file: {closed}/alive: it cannot be written: Permission denied\n"


def test_whatever_a_check_raises_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    def check() -> None:
        raise ZeroDivisionError

    with pytest.raises(SystemExit) as ended:
        _or_end(check)
    assert ended.value.code == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
