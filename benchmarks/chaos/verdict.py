"""Counting what is left: nothing lost, nothing twice, and every rule kept."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, text

from benchmarks.chaos.writers import Ledger
from models import transaction
from models.breaker import server_of
from models.settings import Settings
from models.status import read_status

_SNAPSHOTS = text("""
    select n.session_id, n.span_start / 10 as number, p.content
      from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
     where n.level = 1 and n.retired_at is null
""")

# How often each snapshot is remembered: as itself, or below an active node; once, or something went wrong.
_REMEMBERED = text("""
    with recursive below as (
        select n.id, n.level from mneme.summary_nodes n where n.superseded_by is null and n.retired_at is null
         union all
        select p.id, p.level from below b join mneme.summary_edges e on e.node_id = b.id
          join mneme.summary_nodes p on p.id = e.parent_id)
    select count(*) filter (where times = 0) as forgotten, count(*) filter (where times > 1) as twice
      from (select n.id, count(b.id) as times from mneme.summary_nodes n left join below b on b.id = n.id
             where n.level = 1 and n.retired_at is null group by n.id) as counted
""")

_FOLDED_TWICE = text("""
    select count(*) from (
        select e.parent_id from mneme.summary_edges e join mneme.summary_nodes n on n.id = e.node_id and n.retired_at is null
         group by e.parent_id having count(*) > 1) as twice
""")

_RUNS = text("""
    select count(*) filter (where state = 'succeeded') as succeeded, count(*) filter (where state = 'declined') as declined,
           count(*) filter (where state = 'expired') as expired, count(*) filter (where state = 'failed') as failed,
           (select count(*) from mneme.summary_nodes where level > 1) as folds
      from mneme.compaction_runs
""")


@dataclass(frozen=True)
class Verdict:
    """What was found; ``clean`` is the doctor's word."""

    kept: int
    lost: int
    unexpected: int
    duplicates: int
    folds: int
    declined: int
    expired: int
    failed: int
    unsettled: int
    clean: bool

    @property
    def holds(self) -> bool:
        """Whether nothing was lost or doubled, everything settled, and no rule is broken."""
        return self.clean and not (self.lost or self.unexpected or self.duplicates or self.unsettled)


def is_settled(engine: Engine, settings: Settings) -> bool:
    """Whether nothing is due and nothing runs, by the rules of the status."""
    with transaction(engine) as connection:
        status = read_status(connection, settings.mneme, server_of(settings))
    return not status.waiting and not status.running and not status.dead


def judge(engine: Engine, settings: Settings, environ: Mapping[str, str], ledger: Ledger) -> Verdict:
    """Compare the database with the ledger, byte for byte, and ask the doctor."""
    with transaction(engine, statement_seconds=120) as connection:
        there = {(row.session_id, row.number): row.content for row in connection.execute(_SNAPSHOTS)}
        remembered = connection.execute(_REMEMBERED).one()
        twice = connection.execute(_FOLDED_TWICE).scalar_one()
        runs = connection.execute(_RUNS).one()
    lost = sum(there.get(key) != content for key, content in ledger.written.items())
    return Verdict(
        kept=len(ledger.written) - lost,
        lost=lost + remembered.forgotten,
        unexpected=len(there.keys() - ledger.written.keys()) + len(ledger.faults),
        duplicates=twice + remembered.twice + abs(runs.folds - runs.succeeded),
        folds=runs.folds,
        declined=runs.declined,
        expired=runs.expired,
        failed=runs.failed,
        unsettled=0 if is_settled(engine, settings) else 1,
        clean=_doctor(environ),
    )


def mneme(environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    program = [str(Path(sys.executable).with_name("mneme")), *arguments]
    return subprocess.run(program, env=dict(environ), capture_output=True, text=True, check=False)


def _doctor(environ: Mapping[str, str]) -> bool:
    done = mneme(environ, "doctor", "--json")
    if done.returncode == 0:
        return True
    sys.stderr.write(done.stderr)
    if done.stdout:
        sys.stderr.write(json.dumps(json.loads(done.stdout), indent=1) + "\n")
    return False
