"""The day itself: a backup while folds are under way, the loss of the hosts, the restore, and what follows."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.answers import Thinks
from benchmarks.chaos.verdict import judge
from benchmarks.chaos.writers import Ledger
from benchmarks.logs import told, troubles
from benchmarks.rehearsal import Tell
from benchmarks.restore import commands, host
from benchmarks.restore.app import App
from benchmarks.restore.outcome import Backup, Outcome
from benchmarks.restore.rights import rights
from benchmarks.restore.ways import Way, other_ways, ways_without_the_app
from benchmarks.services import Services
from benchmarks.settling import settle
from models import grant, make_engine, migrate
from tests.support.model_server import model_server
from tests.support.processes import wait_until

OWNER, APP = "mneme_service", "shop_app"
PATIENCE_SECONDS = 60.0
_RUNNING = "select count(*) from mneme.compaction_runs where state = 'running'"
_FOLDS = "select count(*) from mneme.summary_nodes where level > 1"


@dataclass(frozen=True)
class Plan:
    """How much is written before the backup, and for how long after it."""

    folds_before: int = 40
    seconds_after: float = 2.0
    sessions: int = 15
    workers: int = 2
    writes_each_second: float = 60.0


def rehearse_restore(plan: Plan, directory: Path, sockets: Path, tell: Tell) -> Outcome:
    """Rehearse a plan in a directory. From the main thread."""
    thinks = Thinks()
    with model_server() as server:
        server.answer = thinks.answer
        services = Services(directory, sockets, server.url, {"MNEME_MNEME__LEASE_SECONDS": "5"}, user=OWNER)
        app = App(services.url(APP), plan.sessions, 1 / plan.writes_each_second)
        try:
            return _Restore(plan, services, app, thinks, tell).run()
        finally:
            app.end()
            services.stop()


class _Restore:
    def __init__(self, plan: Plan, services: Services, app: App, thinks: Thinks, tell: Tell) -> None:
        self._plan, self._services, self._app, self._thinks, self._tell = plan, services, app, thinks, tell
        self._workers = [*(f"worker{number}" for number in range(plan.workers)), "beat"]
        self._ways: list[Way] = []
        self._dump = services.directory / "mneme.dump"

    def run(self) -> Outcome:
        """Lose everything and get it back."""
        services, app = self._services, self._app
        self._begin()
        took = self._back_up()
        time.sleep(self._plan.seconds_after)
        before = rights(services.url(OWNER))
        self._tell("the hosts are lost")
        host.lose(services)
        app.end()
        acknowledged = len(app.log)
        host.replace(services)
        restore_seconds, said, restored_at = self._restore()
        changed = tuple(sorted(before ^ rights(services.url(OWNER))))
        lost = acknowledged - self._count("select count(*) from mneme.summary_nodes where level = 1")
        there, anew = app.write_again()
        app.begin()
        backup = self._look_into_backup(took)
        first_fold = self._wait_for_folds(restored_at)
        self._tell("other ways to restore")
        self._ways += other_ways(services, self._dump, OWNER, APP)
        app.end()
        engine = make_engine(services.settings.require_database_url(), pooled=False)
        settle_seconds = settle(engine, services.settings, PATIENCE_SECONDS)
        ledger = Ledger({key: content for key, (content, _) in app.log.items()}, faults=app.refused)
        return Outcome(
            acknowledged, backup, lost, restore_seconds, said, changed, there, anew, len(app.log),
            self._became(backup.running), first_fold, self._folds_since(restored_at), settle_seconds,
            judge(engine, services.settings, services.environ, ledger), tuple(self._ways),
            told([services.children[name].log for name in self._workers], troubles),
            tuple(f"{name} ended by itself" for name in self._workers if services.children[name].has_ended),
        )  # fmt: skip

    def _begin(self) -> None:
        services = self._services
        services.start_postgres()
        services.start_redis()
        self._make_owner()
        services.execute(f"create role {APP} login")
        engine = make_engine(services.settings.require_database_url(), pooled=False)
        migrate(engine)
        grant(engine, APP)
        for name in self._workers:
            services.start_celery(name)
        self._app.begin()
        wait_until(lambda: self._count(_FOLDS) >= self._plan.folds_before, PATIENCE_SECONDS, "folds")

    def _make_owner(self) -> None:
        """Do what a logical backup of one schema does not: roles are of the cluster, and the database is another one."""
        self._services.execute(f"create role {OWNER} login", f"grant create on database mneme to {OWNER}")

    def _back_up(self) -> float:
        """Back up while the model keeps folds waiting, so that there are runs with a lease in it."""
        self._thinks.hold()
        wait_until(lambda: self._count(_RUNNING), PATIENCE_SECONDS, "a fold under way")
        began = time.monotonic()
        commands.dump(self._services.url(OWNER), self._dump)
        self._thinks.go_on()
        return time.monotonic() - began

    def _restore(self) -> tuple[float, str, Any]:
        """Return how long it took, what ``mneme migrate`` said, and when it was done by the database's clock."""
        services = self._services
        self._make_owner()
        self._ways += ways_without_the_app(services, self._dump, OWNER, APP)
        services.execute(f"create role {APP} login")
        began = time.monotonic()
        commands.restored(services.url(OWNER), self._dump)
        took = time.monotonic() - began
        at = self._row("select clock_timestamp()")[0]
        command = services.command("migrate")
        done = subprocess.run(command, env=services.environ, capture_output=True, text=True, check=False)
        return took, (done.stdout + done.stderr).strip(), at

    def _look_into_backup(self, took: float) -> Backup:
        """Restore it where no worker is, and count."""
        self._services.execute("create database looked_into", f"grant create on database looked_into to {OWNER}")
        url = self._services.url(OWNER, "looked_into")
        commands.restored(url, self._dump)
        with psycopg.connect(url) as connection:
            count = (
                "select count(*) filter (where level = 1), count(*) filter (where level > 1) from mneme.summary_nodes"
            )
            snapshots, folds = connection.execute(count).fetchone() or (0, 0)
            running = connection.execute(
                "select id::text from mneme.compaction_runs where state = 'running'"
            ).fetchall()
        return Backup(took, snapshots, folds, tuple(row[0] for row in running))

    def _wait_for_folds(self, since: Any) -> float:
        wait_until(lambda: self._folds_since(since) >= self._plan.folds_before, PATIENCE_SECONDS, "folds anew")
        first = "select min(created_at) from mneme.summary_nodes where level > 1 and created_at > %s"
        return float((self._row(first, since)[0] - since).total_seconds())

    def _folds_since(self, since: Any) -> int:
        return int(self._row(f"{_FOLDS} and created_at > %s", since)[0])

    def _became(self, running: tuple[str, ...]) -> dict[str, int]:
        states = "select state, count(*)::integer from mneme.compaction_runs where id = any (%s::uuid[]) group by state"
        with psycopg.connect(self._services.url(OWNER)) as connection:
            return dict(connection.execute(states, [list(running)]).fetchall())

    def _count(self, statement: str) -> int:
        return int(self._row(statement)[0])

    def _row(self, statement: str, *parameters: Any) -> tuple[Any, ...]:
        with psycopg.connect(self._services.url(OWNER)) as connection:
            row = connection.execute(statement, parameters or None).fetchone()
        assert row is not None
        return row
