"""Whatever dies, in whatever order: poisoned snapshots, a wrong key for the whole fleet, services that go away."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text

from models import load_settings, make_engine, migrate
from tasks.broker import publish
from tests.support import model_server as says
from tests.support.model_server import Call, ModelServer
from tests.support.processes import Process, celery, celery_worker, log_lines, mneme, process, run, wait_until
from tests.support.servers import Postgres, free_port, redis_program
from tests.support.snapshots import active, all_runs, content, node, write


@contextmanager
def beat(environ: dict[str, str], log: Path) -> Iterator[Process]:
    with process(celery("beat"), environ, log) as running:
        yield running


def levels(engine: Engine, session_id: str) -> list[int]:
    return [n.level for n in active(engine, session_id)]


# ------------------------------------------------------------------------------------------------ poison


def test_a_snapshot_that_kills_its_worker_is_given_up_and_the_others_are_folded(
    engine: Engine,
    worker_environ: dict[str, str],
    server: ModelServer,
    broker: redis.Redis,
    tmp_path: Path,
    scalar: Any,
) -> None:
    """FAILURES 8 and 13: crashes are counted before the call, and halve the batch from the second on."""
    environ = worker_environ | {"MNEME_MNEME__LEASE_SECONDS": "3", "MNEME_LLM__TIMEOUT_SECONDS": "2"}
    write(engine, "s", [n for n in range(22) if n != 1])
    write(engine, "s", [1], content="POISON " + content("s", 1))
    running: list[Process] = []

    def answer(call: Call) -> None:
        if "POISON" in call.prompt:
            running[-1].send(signal.SIGKILL)
        says.saves("Short.")(call)

    server.answer = answer
    deaths = 0
    with beat(environ, tmp_path / "beat.log"):
        while True:
            with celery_worker(environ, tmp_path / f"worker{deaths}.log") as worker:
                running.append(worker)
                publish(load_settings(environ), "s")
                wait_until(lambda: worker.popen.poll() is not None or levels(engine, "s") == [1, 1, 2], 60)
                if worker.popen.poll() is None:
                    break
            deaths += 1
    assert deaths == 5
    died = [r for r in all_runs(engine, "s") if r.state == "expired"]
    assert [(r.crashes, len(r.input_ids)) for r in died] == [(1, 20), (2, 20), (3, 10), (4, 5), (5, 2)]
    given_up = [n for n in active(engine, "s") if n.level == 1]
    assert [(n.dismissed_reason, n.span_start) for n in given_up] == [("crashes", 1), ("crashes", 11)]
    told = run(mneme("status"), environ).stdout
    assert "dismissed   2 crashes" in told
    assert f"node {given_up[1].id} of session s" in told


# ------------------------------------------------------------------------------------------------ the fleet


def test_a_wrong_key_costs_a_handful_of_calls_and_is_got_over_without_anybody(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis,
    tmp_path: Path, scalar: Any,
) -> None:  # fmt: skip
    """FAILURES 9 and 29, for the whole fleet."""
    hold_seconds, slots, sessions = 6, 8, 120
    environ = worker_environ | {"MNEME_LLM__BREAKER_SECONDS": str(hold_seconds), "MNEME_WORKER__CONCURRENCY": "4"}
    for number in range(sessions):
        write(engine, f"s{number}", range(5))
    server.answer = says.fails(401)
    with (
        celery_worker(environ, tmp_path / "one.log") as one,
        celery_worker(environ, tmp_path / "two.log"),
        beat(environ, tmp_path / "beat.log"),
    ):
        server.wait_for_calls(1, 30)
        time.sleep(2 * hold_seconds)
        assert len(server.calls) <= slots + 10
        assert "OPEN: m at http://" in run(mneme("status"), environ).stdout
        server.answer = says.saves("Short.")  # the key is mended
        wait_until(
            lambda: scalar("select count(*) from mneme.summary_nodes where level = 2") == sessions, 90, "all folds"
        )
        assert "breaker closed" in one.log + (tmp_path / "two.log").read_text()
    assert scalar("select count(*) from mneme.breakers") == 0
    assert scalar("select count(*) from mneme.summary_nodes where level = 1 and superseded_by is null") == 0


# ------------------------------------------------------------------------------------------------ inside a commit


def test_a_worker_frozen_inside_its_commit_does_not_hold_its_session_for_long(
    engine: Engine,
    worker_environ: dict[str, str],
    server: ModelServer,
    broker: redis.Redis,
    tmp_path: Path,
    scalar: Any,
) -> None:
    """The server ends a transaction that idles for 10 s, and with it the locks; no lease could."""
    write(engine, "s", range(5))
    settings = load_settings(worker_environ)
    server.answer = lambda call: says.saves(f"By call {call.number}.", after_seconds=1)(call)
    with celery_worker(worker_environ, tmp_path / "one.log") as one:
        publish(settings, "s")
        server.wait_for_calls(1)
        with engine.begin() as holder:  # the commit waits here for the row of its run, and is frozen meanwhile
            holder.execute(text("select from mneme.compaction_runs for update"))
            waiting = (
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%no key update%'"
            )
            wait_until(lambda: scalar(waiting) == 1)
            one.send(signal.SIGSTOP)
        idle = (
            "select count(*) from pg_stat_activity where state = 'idle in transaction' and application_name = 'mneme'"
        )
        wait_until(lambda: scalar(idle) >= 1)
        began = time.monotonic()
        with celery_worker(worker_environ, tmp_path / "two.log"), beat(worker_environ, tmp_path / "beat.log"):
            wait_until(lambda: levels(engine, "s") == [2], 30, "a fold by the other worker")
            assert time.monotonic() - began < 6 + 10 + 5  # lease, idle timeout, sweep
            one.send(signal.SIGCONT)
            wait_until(lambda: "lost_lease" in one.log or "lease lost" in one.log, 20)
    assert [r.state for r in all_runs(engine, "s")] == ["expired", "succeeded"]
    assert [n.content for n in active(engine, "s")] == ["By call 2."]
    assert scalar("select count(*) from mneme.summary_nodes where level = 2") == 1


# ------------------------------------------------------------------------------------------------ Postgres goes away


@pytest.fixture
def restartable(tmp_path: Path) -> "Iterator[tuple[Callable[[], None], Callable[[signal.Signals], None], str]]":
    """A Postgres of the test's own: how to start it, how to end it, its URL."""
    from tests.support.servers import SOURCE
    from worker.embedded.children import Child
    from worker.embedded.programs import find_postgres
    from worker.embedded.servers import socket_directory, start_postgres

    port = free_port()
    data = tmp_path / "server"
    data.mkdir()
    running: list[Child] = []
    with socket_directory(data) as sockets:

        def start() -> None:
            options = {"listen_addresses": "127.0.0.1", "port": str(port)}
            running.append(start_postgres(find_postgres(SOURCE), data, sockets, options)[0])

        def end(how: signal.Signals) -> None:
            running[-1].process.send_signal(how)
            running[-1].process.wait(20)

        start()
        try:
            yield start, end, f"postgresql://postgres@127.0.0.1:{port}/mneme"
        finally:
            running[-1].stop(20)


def _own(url: str) -> Engine:
    engine = make_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    migrate(engine)
    return engine


@pytest.mark.parametrize("moment", ["during the call", "for ten seconds"])
def test_postgres_restarts_and_the_worker_and_beat_go_on_by_themselves(
    moment: str,
    restartable: Any,
    worker_environ: dict[str, str],
    server: ModelServer,
    broker: redis.Redis,
    tmp_path: Path,
) -> None:
    start, end, url = restartable
    environ = worker_environ | {"DATABASE_URL": url}
    engine = _own(url)
    write(engine, "s", range(5))
    write(engine, "t", range(5))
    server.answer = says.saves("Short.", after_seconds=1.5)
    with (
        celery_worker(environ, tmp_path / "worker.log") as worker,
        beat(environ, tmp_path / "beat.log") as its_beat,
    ):
        publish(load_settings(environ), "s")
        server.wait_for_calls(1)
        end(signal.SIGINT)
        if moment == "for ten seconds":
            publish(load_settings(environ), "t")
            time.sleep(10)
        start()
        wait_until(lambda: levels(engine, "s") == levels(engine, "t") == [2], 60, "both folds")
        assert worker.popen.poll() is None
        assert its_beat.popen.poll() is None
    runs = all_runs(engine, "s") + all_runs(engine, "t")
    assert [r.state for r in runs].count("succeeded") == 2
    assert sum(r.state == "running" for r in runs) == 0
    if moment == "during the call":
        assert len(server.calls) == 2  # the answer outlived the restart: nothing was paid twice
    engine.dispose()


def test_a_database_that_is_read_only_for_a_while_is_waited_for(
    postgres: Postgres, engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis,
    tmp_path: Path,
) -> None:  # fmt: skip
    """As after a failover to a standby that is promoted a little later."""
    write(engine, "s", range(5))
    name = engine.url.database
    server.answer = says.saves("Short.", after_seconds=1)
    with celery_worker(worker_environ, tmp_path / "worker.log"), beat(worker_environ, tmp_path / "beat.log"):
        publish(load_settings(worker_environ), "s")
        server.wait_for_calls(1)
        postgres.execute(f"alter database {name} set default_transaction_read_only = on")
        try:
            postgres.execute(
                f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}' and pid <> pg_backend_pid()"
            )
            time.sleep(4)
            assert levels(engine, "s") == [1] * 5
        finally:
            postgres.execute(f"alter database {name} reset default_transaction_read_only")
            postgres.execute(
                f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}' and pid <> pg_backend_pid()"
            )
        wait_until(lambda: levels(engine, "s") == [2], 60, "the fold")
    assert all_runs(engine, "s")[-1].state == "succeeded"


# ------------------------------------------------------------------------------------------------ Redis goes away


@contextmanager
def a_redis(port: int, directory: Path, log: Path) -> Iterator[Process]:
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", "", "--appendonly", "no"]
    with process([redis_program(), *options], {}, log) as running:
        yield running


@pytest.mark.parametrize("how", ["restarted empty", "frozen"])
def test_redis_goes_away_and_comes_back(
    how: str, engine: Engine, worker_environ: dict[str, str], server: ModelServer, tmp_path: Path
) -> None:
    port = free_port()
    environ = worker_environ | {"REDIS_URL": f"redis://127.0.0.1:{port}/0"}
    with a_redis(port, tmp_path, tmp_path / "redis.log") as first:
        wait_until(lambda: "ready" in first.log.lower())
        with (
            celery_worker(environ, tmp_path / "worker.log") as worker,
            beat(environ, tmp_path / "beat.log") as its_beat,
        ):
            write(engine, "before", range(5))
            wait_until(lambda: levels(engine, "before") == [2], 30)
            if how == "frozen":
                first.send(signal.SIGSTOP)
                write(engine, "meanwhile", range(5))
                time.sleep(8)
                first.send(signal.SIGCONT)
                wait_until(lambda: levels(engine, "meanwhile") == [2], 90, "a fold after the thaw")
            else:
                first.send(signal.SIGKILL)
                write(engine, "meanwhile", range(5))
                time.sleep(3)
                with a_redis(port, tmp_path, tmp_path / "redis2.log"):
                    wait_until(lambda: levels(engine, "meanwhile") == [2], 90, "a fold by the new server")
                    assert worker.popen.poll() is None
            assert its_beat.popen.poll() is None
    assert len(server.calls) == 2


def test_redis_dies_while_jobs_are_under_way_and_the_worker_lives(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, tmp_path: Path
) -> None:
    """A job that ends after its connection is gone cannot be acknowledged; that must not end the worker."""
    port = free_port()
    environ = worker_environ | {"REDIS_URL": f"redis://127.0.0.1:{port}/0"}
    server.answer = says.saves("Short.", after_seconds=2.5)
    with (
        a_redis(port, tmp_path, tmp_path / "redis.log") as first,
        celery_worker(environ, tmp_path / "worker.log") as worker,
    ):
        for name in ("a", "b", "c"):
            write(engine, name, range(5))
            publish(load_settings(environ), name)
        server.wait_for_calls(3)
        first.send(signal.SIGKILL)
        first.popen.wait(10)
        wait_until(lambda: all(levels(engine, name) == [2] for name in ("a", "b", "c")), 30, "the folds under way")
        with a_redis(port, tmp_path, tmp_path / "redis2.log") as second:
            wait_until(lambda: "ready" in second.log.lower())
            write(engine, "after", range(5))
            publish(load_settings(environ), "after")
            wait_until(lambda: levels(engine, "after") == [2], 60, "a fold by the same worker")
        assert worker.popen.poll() is None
        assert "Unrecoverable" not in worker.log
    assert len(server.calls) == 4


class _Proxy:
    """Passes bytes on between a port of its own and another, until it swallows them: a half-open connection."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._swallowed: set[socket.socket] = set()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads[0].start()

    def swallow(self) -> None:
        """Pass on no more bytes of the connections that there are; new ones work."""
        self._swallowed |= set(self._open)

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            outer = socket.create_connection(("127.0.0.1", self._to))
            self._open += [inner, outer]
            for source, sink in ((inner, outer), (outer, inner)):
                self._threads.append(threading.Thread(target=self._pump, args=(source, sink)))
                self._threads[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if source not in self._swallowed:
                    sink.sendall(data)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in (self._listener, *self._open):
            each.close()


def test_a_worker_comes_back_from_half_open_connections(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    """The connections are there and nothing comes through: only a socket timeout tells. New ones work."""
    proxy = _Proxy(int(worker_environ["REDIS_URL"].rsplit(":", 1)[1].partition("/")[0]))
    environ = worker_environ | {"REDIS_URL": f"redis://127.0.0.1:{proxy.port}/0"}
    try:
        with celery_worker(environ, tmp_path / "worker.log") as worker, beat(worker_environ, tmp_path / "beat.log"):
            proxy.swallow()
            write(engine, "s", range(5))
            wait_until(lambda: levels(engine, "s") == [2], 120, "a fold through new connections")
            assert worker.popen.poll() is None
    finally:
        proxy.close()


# ------------------------------------------------------------------------------------------------ beats and sweeps


def test_two_beats_and_three_workers_enqueue_no_session_twice(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    """FAILURES 11. They wait for longer than several sweeps, and each would be enqueued by every one of them."""
    environ = worker_environ | {"MNEME_SCHEDULES__REQUEUE_SECONDS": "300"}  # longer than this may take
    for number in range(40):
        write(engine, f"s{number}", range(5))
    server.answer = says.saves("Short.", after_seconds=2)
    logs = [tmp_path / f"worker{n}.log" for n in range(3)]
    with (
        beat(environ, tmp_path / "beat0.log"),
        beat(environ, tmp_path / "beat1.log"),
        celery_worker(environ, logs[0]),
        celery_worker(environ, logs[1]),
        celery_worker(environ, logs[2]),
    ):
        wait_until(lambda: all(levels(engine, f"s{n}") == [2] for n in range(40)), 120)
        time.sleep(3)
    swept = [told for log in logs for told in log_lines(log.read_text()) if told["event"] == "sweep"]
    assert sum(told["enqueued"] for told in swept) == 40
    assert len(server.calls) == 40
    assert node(engine, active(engine, "s0")[0].id).level == 2
