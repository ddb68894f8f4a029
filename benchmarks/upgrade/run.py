"""The upgrade itself, step by step, each of which waits until the one before has shown something."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.answers import Thinks
from benchmarks.chaos.verdict import judge
from benchmarks.logs import told, troubles, warnings
from benchmarks.services import Services
from benchmarks.settling import settle
from benchmarks.upgrade.folds import Folds
from benchmarks.upgrade.migration import Migration, migrate, migrate_under_load
from benchmarks.upgrade.outcome import Outcome
from benchmarks.upgrade.producers import Producers
from benchmarks.upgrade.release import ROOT, unpack
from models import make_engine
from tests.support.model_server import model_server
from tests.support.processes import wait_until

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """From where, and how much; each step waits for ``folds_each_step`` folds, and writing for the steps."""

    revision: str
    snapshots: int
    sessions: int = 15
    workers: int = 2
    writes_each_second: float = 40.0
    folds_each_step: int = 15


def upgrade(plan: Plan, directory: Path, sockets: Path, tell: Callable[[str], None]) -> Outcome:
    """Rehearse a plan in a directory. From the main thread.

    Raises:
        NoRelease: the history at hand does not hold the revision.
    """
    release = unpack(plan.revision, directory)
    thinks = Thinks()
    with model_server() as server:
        server.answer = thinks.answer
        services = Services(directory, sockets, server.url)
        try:
            return _Upgrade(plan, services, release, tell).run()
        finally:
            services.stop()


class _Upgrade:
    def __init__(self, plan: Plan, services: Services, release: Path, tell: Callable[[str], None]) -> None:
        self._plan, self._services, self._release, self._tell = plan, services, release, tell
        self._producers = Producers(services, plan.sessions, 3 / plan.writes_each_second)
        self._folds = Folds(services)
        self._old = [f"old{number}" for number in range(plan.workers)]
        self._new = [f"new{number}" for number in range(plan.workers)]
        self._problems: list[str] = []

    def run(self) -> Outcome:
        """Begin with the old release, end with the new one, and judge."""
        services, folds, more = self._services, self._folds, self._plan.folds_each_step
        self._begin()
        folds.wait_for("old", more)
        self._tell("migrating while the old workers fold")
        migration = migrate_under_load(services, open_transactions=3)
        if migration.before != migration.after or migration.attempts > 1:
            self._tell(f"schema {migration.before} to {migration.after}, {migration.attempts} attempts")
        folds.enter("old after it")
        folds.wait_for("old", more)
        self._tell("new workers beside the old ones")
        self._start(self._new, None)
        folds.enter("both")
        folds.wait_for("old", more)
        folds.wait_for("new", more)
        self._tell("the old ones are stopped")
        folds.enter("new alone")
        self._stop_politely(self._old)
        self._stop_politely(["beat-old"])
        services.start_celery("beat-new")
        folds.wait_for("new", more)
        wait_until(lambda: len(self._producers.written().ledger.written) >= self._plan.snapshots, 600, "all snapshots")
        if not self._producers.running:
            self._problems.append("a producer ended by itself")
        self._producers.stop()
        return self._judge(migration)

    def _begin(self) -> None:
        services = self._services
        services.start_postgres()
        services.start_redis()
        done = migrate(services, self._release)
        if done.returncode:
            raise RuntimeError(f"the old release could not migrate: {done.stderr}")
        self._start(self._old, self._release)
        services.start_celery("beat-old", self._release)
        has_client = (self._release / "client" / "mneme_client").is_dir()
        self._producers.start("app-old", "client" if has_client else "sql", self._release)
        self._producers.start("app-new", "client")
        self._producers.start("app-sql", "sql")

    def _start(self, names: list[str], release: Path | None) -> None:
        """Start workers, and make sure that each runs the code it should."""
        for name in names:
            child = self._services.start_celery(name, release)
            self._folds.made_by("old" if release else "new", child.process.pid)
        for name in names:
            child = self._services.children[name]
            wait_until(lambda c=child: b" ready." in c.said() or c.has_ended, PATIENCE_SECONDS, f"{name} to be ready")
            if child.has_ended:
                raise RuntimeError(f"{name} ended with {child.process.returncode}:\n{child.last_lines(20)}")
            code = f"code of {release or ROOT}/models/__init__.py\n"
            if code.encode() not in child.said():
                raise RuntimeError(f"{name} should run the {code}")

    def _stop_politely(self, names: list[str]) -> None:
        for name in names:
            self._services.children[name].process.terminate()
        for name in names:
            code = self._services.children[name].process.wait(PATIENCE_SECONDS)
            if code:
                self._problems.append(f"{name} ended with {code} after SIGTERM")

    def _judge(self, migration: Migration) -> Outcome:
        services, written = self._services, self._producers.written()
        engine = make_engine(services.settings.require_database_url(), pooled=False)
        took = settle(engine, services.settings, PATIENCE_SECONDS)
        written.ledger.written |= {(session_id, 0): content for session_id, content in migration.held.items()}
        if not written.code.get("app-old", str(self._release)).startswith(str(self._release)):
            self._problems.append(f"the old app had the client {written.code['app-old']}")
        said = services.children["beat-old"].said()
        if f"code of {self._release}/".encode() not in said:
            self._problems.append("the old beat ran other code")
        logs = [services.children[name].log for name in (*self._old, *self._new, "beat-old", "beat-new")]
        return Outcome(
            self._plan.revision,
            f"the code of {self._release.name} and new ones that of this checkout, as each said in its log",
            written,
            migration,
            judge(engine, services.settings, services.environ, written.ledger),
            self._folds.counted(),
            took,
            told(logs, troubles),
            told(logs, warnings),
            tuple(self._problems),
        )
