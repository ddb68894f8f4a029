"""The new release's ``mneme migrate``, while transactions of a main app are open."""

import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.services import Services

HELD_SECONDS = 1.5
ATTEMPTS = 5
_WRITE = "select mneme.write_l1_snapshot(%s, 1, 10, %s)"


@dataclass(frozen=True)
class Migration:
    """What came of it; ``held`` is what the open transactions wrote: session to content."""

    seconds: float
    attempts: int
    said: str
    before: str
    after: str
    held: dict[str, str]


def revision(services: Services) -> str:
    """Return the revision of the schema in the database."""
    with psycopg.connect(services.url("postgres")) as connection:
        row = connection.execute("select version_num from mneme.alembic_version").fetchone()
    return str(row and row[0])


def migrate(services: Services, release: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a release's ``mneme migrate``."""
    return subprocess.run(
        services.command("migrate"),
        env=services.environ_of(release),
        cwd=release,
        capture_output=True,
        text=True,
        check=False,
    )


def migrate_under_load(services: Services, open_transactions: int) -> Migration:
    """Migrate to this release; writers hold what they wrote for ``HELD_SECONDS``, and one reader what it read."""
    before = revision(services)
    url = services.url("postgres")
    connections = [psycopg.connect(url) for _ in range(open_transactions + 1)]
    held = {f"held-{number}": f"Held open while migrating, {number}. é 🧪" for number in range(open_transactions)}
    for connection, (session_id, content) in zip(connections, held.items(), strict=False):
        connection.execute(_WRITE, [session_id, content])
    connections[-1].execute("select * from mneme.active_summary_nodes limit 1")

    def let_go() -> None:
        for connection in connections:
            connection.commit()
            connection.close()

    timer = threading.Timer(HELD_SECONDS, let_go)
    timer.start()
    began, attempts = time.monotonic(), 0
    while (attempts := attempts + 1) <= ATTEMPTS:  # what whoever upgrades would do when it is told to try again
        done = migrate(services)
        if done.returncode == 0:
            break
    took = time.monotonic() - began
    timer.join()
    said = (done.stdout + done.stderr).strip()
    return Migration(took, attempts, said, before, revision(services), held)
