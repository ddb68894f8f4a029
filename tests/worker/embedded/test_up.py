"""``mneme up`` and ``mneme demo`` as processes: started, used, ended in every way."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from models import make_engine
from models.urls import database_url
from tests.support.processes import Process, mneme, process, run, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import active, write

QUICK = {
    "MNEME_SCHEDULES__SWEEP_SECONDS": "1",
    "MNEME_SCHEDULES__GRACE_SECONDS": "0",
    "MNEME_SCHEDULES__REQUEUE_SECONDS": "1",
    "MNEME_EMBEDDED__FLOWER_PORT": str(free_port()),  # tests run beside one another
}


@contextmanager
def up(data: Path, log: Path, environ: dict[str, str] | None = None) -> Iterator[Process]:
    log.unlink(missing_ok=True)
    with process(mneme("up", "--data", str(data)), QUICK | (environ or {}), log) as running:
        running.wait_for_log("Ready.", 60)
        yield running


def engine_of(running: Process) -> Engine:
    found = re.search(r"Postgres +(postgresql://\S+)", running.log)
    assert found
    return make_engine(database_url(found[1]), pooled=False)


def processes_below(data: Path) -> list[str]:
    """Return the command lines of processes that have to do with the directory: in their arguments or as their place."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(data) in command or str(data) in os.readlink(entry / "cwd"):
                found.append(command)
        except OSError:
            continue
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel ends orphans on Linux alone")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_however_it_ends_nothing_is_left_and_the_data_goes_on(how: signal.Signals, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data, tmp_path / "one.log") as running:
        engine = engine_of(running)
        write(engine, "s", range(7))
        wait_until(lambda: [n.level for n in active(engine, "s")] == [2], 30, "a fold")
        assert re.search(r"Flower +http://127\.0\.0\.1:\d+", running.log)
        before = active(engine, "s")
        write(engine, "s", range(10, 13))
        running.popen.send_signal(how)
        running.popen.wait(60)
        if how != signal.SIGKILL:
            assert running.popen.returncode == 0
            assert running.log.rstrip().endswith("Stopped.")
        wait_until(lambda: processes_below(data) == [], 30, "every process to be gone")
    assert list(data.glob("run/*")) == []
    assert not (data / "postgres" / "postmaster.pid").exists()
    with up(data, tmp_path / "two.log") as running:
        engine = engine_of(running)
        assert active(engine, "s")[0] == before[0]
        assert len(active(engine, "s")) == 4
        write(engine, "s", range(13, 15))
        wait_until(lambda: [n.level for n in active(engine, "s")] == [2, 2], 30, "a fold after the restart")
    assert processes_below(data) == []


def test_a_second_one_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with up(tmp_path / "data", tmp_path / "one.log"):
        second = run(mneme("up", "--data", str(tmp_path / "data")), {})
        assert (second.returncode, second.stderr) == (
            1,
            f"mneme: {tmp_path / 'data'} is in use by another `mneme up`\n",
        )


def test_a_child_that_ends_is_named_and_the_rest_stopped(tmp_path: Path) -> None:
    with up(tmp_path / "data", tmp_path / "up.log") as running:
        children = subprocess.run(
            ["ps", "-ww", "--ppid", str(running.popen.pid), "-o", "pid=,args="],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        beat = next(line.split()[0] for line in children.splitlines() if " beat" in line)
        os.kill(int(beat), signal.SIGKILL)
        assert running.popen.wait(60) == 1
        assert "mneme: beat has ended, its log" in running.log
    wait_until(lambda: processes_below(tmp_path / "data") == [])


def test_addresses_that_are_given_are_used(tmp_path: Path, database_url: str, redis_url: str, engine: Engine) -> None:
    with up(tmp_path / "data", tmp_path / "up.log", {"DATABASE_URL": database_url, "REDIS_URL": redis_url}) as running:
        assert "as given by DATABASE_URL" in running.log
        assert not (tmp_path / "data" / "postgres").exists()
        write(engine, "s", range(5))
        wait_until(lambda: [n.level for n in active(engine, "s")] == [2], 30, "a fold")


def test_a_directory_with_traces_of_all_kinds_and_a_shell_that_remembers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    # A package of the name that Celery looks for, the work of an initdb that was killed, a log of yesterday.
    for name in ("worker", "postgres.new-abc"):
        (data / name).mkdir(parents=True)
        (data / name / "__init__.py").write_text("raise SystemExit(9)")
    (data / "worker.log").write_text("yesterday@host ready.\n")
    with up(data, tmp_path / "one.log") as running:
        assert (data / "worker.log").read_text().count(" ready.") == 2
        urls = {name: url.strip("'") for name, url in re.findall(r"export (\w+)=(\S+)", running.log)}
        write(engine_of(running), "s", range(5))
        running.popen.send_signal(signal.SIGHUP)  # the terminal was closed
        assert running.popen.wait(60) == 0
        wait_until(lambda: processes_below(data) == [], 30, "every process to be gone")
    assert not list(data.glob("postgres.new-*"))
    with up(data, tmp_path / "two.log", urls) as running:
        assert "as given" not in running.log
        wait_until(lambda: [n.level for n in active(engine_of(running), "s")] == [2], 30, "a fold")


def test_temporary_directories_of_killed_ones_are_removed_and_no_others(tmp_path: Path) -> None:
    from worker.embedded.directories import data_directory, lock

    def made(name: str) -> Path:
        (tmp_path / name / "postgres").mkdir(parents=True)
        os.utime(tmp_path / name, (1, 1))
        return tmp_path / name

    killed, alive, another = made("mneme-up-killed"), made("mneme-up-alive"), made("mneme-of-mine")
    (tmp_path / "mneme-up-young").mkdir()
    (tmp_path / "mneme-up-link").symlink_to(another)
    held = lock(alive)
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path)
    try:
        with data_directory(None) as directory:
            assert directory.parent == tmp_path
    finally:
        tempfile.tempdir = before
        os.close(held)
    assert not killed.exists()
    assert {path.name for path in tmp_path.iterdir()} == {
        "mneme-up-alive", "mneme-up-young", "mneme-up-link", "mneme-of-mine",
    }  # fmt: skip


DIRECTORIES = {
    "": (2, "--data is empty"),
    "/proc/x": (2, "the data directory /proc/x cannot be used: No such file"),
    "/dev/null/x": (2, "the data directory /dev/null/x cannot be used: Not a directory"),
    "/tmp/" + "x" * 300: (2, "cannot be used: File name too long"),
    "/tmp/a\nb": (2, "expected a data directory without control characters"),
    "/tmp/\udcff": (2, "expected a data directory without control characters, named in UTF-8"),
}


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_directory_that_cannot_be_one_is_refused_in_a_sentence(directory: str) -> None:
    code, said = DIRECTORIES[directory]
    done = run(mneme("up", "--data", directory), {})
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_given_servers_that_are_away_are_refused_with_the_way_out(tmp_path: Path, database_url: str) -> None:
    away = {"DATABASE_URL": "postgresql://u@127.0.0.1:1/d", "REDIS_URL": "redis://127.0.0.1:1/0"}
    done = run(mneme("up", "--data", str(tmp_path / "data")), away)
    assert done.returncode == 1
    assert "without DATABASE_URL mneme starts a Postgres of its own" in done.stderr
    done = run(mneme("up", "--data", str(tmp_path / "data")), away | {"DATABASE_URL": database_url})
    assert done.returncode == 1
    assert "without REDIS_URL mneme starts a Redis of its own" in done.stderr


REFUSED = {
    "no addresses": ({"MNEME_EMBEDDED__SERVERS": "environment"}, "database.url is not set: set DATABASE_URL"),
    "an unknown kind": ({"MNEME_EMBEDDED__SERVERS": "docker"}, "embedded.servers in MNEME_EMBEDDED__SERVERS: 'docker'"),
    "no model that can be asked": ({"MNEME_LLM__MODEL": "gpt-x"}, "there is no key"),
}


@pytest.mark.parametrize(("environ", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_start_says_why_and_leaves_nothing(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    done = run(mneme("up", "--data", str(tmp_path / "data")), QUICK | environ)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert processes_below(tmp_path / "data") == []


def test_a_directory_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "data" / "postgres" / "a.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("precious")
    done = run(mneme("up", "--data", str(tmp_path / "data")), {})
    assert done.returncode == 2
    assert "holds something that is no data of Postgres: choose another data directory" in done.stderr
    assert theirs.read_text() == "precious"


def test_servers_on_the_loopback_for_clients_that_know_no_sockets(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    with process(mneme("up", "--data", str(tmp_path / "data"), "--tcp"), QUICK, log) as running:
        running.wait_for_log("Ready.", 60)
        urls = dict(re.findall(r"export (\w+)=(\S+)", running.log))
        assert re.fullmatch(r"postgresql://postgres@127\.0\.0\.1:\d+/mneme", urls["DATABASE_URL"])
        with redis.Redis.from_url(urls["REDIS_URL"]) as client:
            assert client.ping()
        engine = make_engine(database_url(urls["DATABASE_URL"]), pooled=False)
        write(engine, "s", range(5))
        wait_until(lambda: [n.level for n in active(engine, "s")] == [2], 30, "a fold")


@pytest.mark.parametrize("after_seconds", [0.6, 1.1, 1.6, 2.2, 3.0])
def test_a_demo_that_is_interrupted_leaves_nothing(after_seconds: float, tmp_path: Path) -> None:
    with process(mneme("demo"), {"TMPDIR": str(tmp_path)}, tmp_path / "demo.log") as running:
        time.sleep(after_seconds)
        running.popen.send_signal(signal.SIGINT)
        running.popen.wait(30)
    assert "Traceback" not in running.log or after_seconds < 1  # Python itself was still starting
    wait_until(lambda: processes_below(tmp_path) == [], 10, "every process to be gone")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.log"]
    if "Starting Postgres" in running.log and "Next:" not in running.log:
        assert running.popen.returncode == 130


def test_an_interruption_within_a_statement_of_the_driver_stays_one(environ: dict[str, str]) -> None:
    """The rollback after it fails, and is not what is told."""
    script = """
import os, signal, threading
from models import get_settings, make_engine, transaction
from worker.commands.up import Stopped, signals_raise

engine = make_engine(get_settings().require_database_url(), pooled=False)
try:
    with signals_raise(), transaction(engine) as connection:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        connection.connection.driver_connection.execute("select pg_sleep(5)")
except Stopped:
    print("stopped")
"""
    done = run([sys.executable, "-c", script], environ)
    assert (done.stdout, done.stderr, done.returncode) == ("stopped\n", "", 0)


def test_a_model_without_a_key_is_said_to_be_left_out(tmp_path: Path) -> None:
    done = run(mneme("demo"), {"MNEME_LLM__MODEL": "gpt-x", "TMPDIR": str(tmp_path)}, timeout_seconds=120)
    assert "There is no OPENAI_API_KEY for the model gpt-x: the extract folds instead." in done.stdout


def test_data_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "postgres").mkdir(parents=True)
    (tmp_path / "data" / "postgres" / "PG_VERSION").write_text("9.6\n")
    done = run(mneme("up", "--data", str(tmp_path / "data")), {})
    assert done.returncode == 2
    assert "was made by Postgres 9.6" in done.stderr


@pytest.mark.parametrize("servers", ["machine", "wheel"])
def test_the_demo_ends_with_the_tree_and_leaves_nothing(servers: str, tmp_path: Path) -> None:
    if servers == "machine" and not (shutil.which("redis-server") or shutil.which("valkey-server")):
        pytest.skip("this machine has no Redis")
    environ = {
        "MNEME_EMBEDDED__SERVERS": servers,
        "TMPDIR": str(tmp_path),
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/theirs",
    }
    began = time.monotonic()
    done = run(mneme("demo"), environ, timeout_seconds=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 60
    assert "32 snapshots, 6 folds;" in done.stdout
    assert "# Long-term memory" in done.stdout
    assert "|-- L2  messages 1 to 177" in done.stdout
    assert "with model extract, " in done.stdout
    assert "\x1b[" not in done.stdout
    assert processes_below(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_the_demo_as_an_ordinary_user(tmp_path: Path) -> None:
    """Servers run as the user himself then; this environment's Python must be readable for him."""
    who = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    asked = [*who, sys.executable, "-c", "import sys, models, worker.embedded.stack; print(sys.version)"]
    if subprocess.run(asked, capture_output=True, text=True).stdout.strip() != sys.version.strip():
        pytest.skip("this Python lies where no other user may read it")
    place = Path("/tmp") / f"mneme-test-{os.getpid()}"
    place.mkdir()
    shutil.chown(place, 65534, 65534)
    try:
        done = run([*who, *mneme("demo")], {"TMPDIR": str(place), "HOME": str(place)}, cwd=place, timeout_seconds=120)
        assert (done.returncode, done.stderr) == (0, "")
        assert "32 snapshots, 6 folds;" in done.stdout
    finally:
        shutil.rmtree(place)


def test_the_sample_session_is_what_the_demo_says_of_it() -> None:
    from worker.demo import demo_snapshots

    snapshots = demo_snapshots()
    assert len(snapshots) == 32
    for before, after in itertools.pairwise(snapshots):
        assert after.span_start == before.span_end + 1
        assert before.ended_at
        assert after.started_at
        assert after.started_at > before.ended_at


def test_the_demo_asks_the_model_that_the_settings_name() -> None:
    from worker.demo import demo_environ

    assert demo_environ({})["MNEME_LLM__MODEL"] == "extract"
    assert demo_environ({"MNEME_LLM__MODEL": "m"})["MNEME_LLM__MODEL"] == "extract"
    assert demo_environ({"MNEME_LLM__MODEL": "m", "OPENAI_API_KEY": "k"})["MNEME_LLM__MODEL"] == "m"
    assert demo_environ({"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": "http://h/v1"})["MNEME_LLM__MODEL"] == "m"
    assert demo_environ({"DATABASE_URL": "postgresql://h/theirs"})["DATABASE_URL"] == ""
