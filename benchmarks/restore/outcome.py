"""What came of a restore, as lines to be read, and whether it holds."""

from dataclasses import dataclass

from benchmarks.chaos.verdict import Verdict
from benchmarks.rehearsal import Report
from benchmarks.restore.ways import Way


@dataclass(frozen=True)
class Backup:
    """What is in it; ``running`` are the ids of the runs that were under way."""

    seconds: float
    snapshots: int
    folds: int
    running: tuple[str, ...]


@dataclass(frozen=True)
class Outcome(Report):
    """What was counted on the way; ``acknowledged`` is what the app had written when the host was lost."""

    acknowledged: int
    backup: Backup
    lost: int
    restore_seconds: float
    migrate_said: str
    rights_changed: tuple[str, ...]
    there: int
    anew: int
    written: int
    held: dict[str, int]
    first_fold_seconds: float
    folds_after: int
    settle_seconds: float
    verdict: Verdict
    ways: tuple[Way, ...]
    errors: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def failures(self) -> list[str]:
        """Why it does not hold; empty when it does."""
        found = list(self.problems)
        found += [] if self.verdict.holds else ["snapshots or folds are not as they should be, or did not settle"]
        found += [] if "up to date" in self.migrate_said else ["mneme migrate did not find the schema current"]
        found += ["owners or rights are not as before"] if self.rights_changed else []
        found += ["what was lost is not what was not in the backup"] if self.lost != self.anew else []
        found += [] if self.backup.running else ["no fold was under way in the backup"]
        found += ["a run of the backup is still running"] if self.held.get("running") else []
        found += [f"{way.name}: {way.came}" for way in self.ways if not way.as_told]
        return found if self.folds_after else [*found, "nothing was folded after the restore"]

    @property
    def lines(self) -> list[str]:
        """What is printed before the judgement."""
        verdict, backup = self.verdict, self.backup
        became = ", ".join(f"{count} {state}" for state, count in sorted(self.held.items()))
        return [
            f"backup      {backup.seconds:.1f} s: {backup.snapshots:,} snapshots, {backup.folds:,} folds,"
            f" {len(backup.running)} more under way",
            f"lost        {self.acknowledged:,} were written when the host was lost: {self.lost:,} of them after the backup",
            f"restore     {self.restore_seconds:.1f} s; mneme migrate: {self.migrate_said}",
            f"rights      {'; '.join(self.rights_changed[:5]) or 'owners, grants and functions as before'}",
            f"again       {self.there + self.anew:,} written again from the app's own log: {self.there:,} were there,"
            f" {self.anew:,} were not and have new ids",
            f"leases      of the {len(backup.running)} runs under way in the backup: {became}",
            f"workers     were not restarted; the first fold came {self.first_fold_seconds:.1f} s after the restore,"
            f" {self.folds_after:,} in all",
            f"snapshots   {self.written:,} written in the end, {verdict.kept:,} kept byte for byte",
            f"lost        {verdict.lost} in the end",
            f"duplicates  {verdict.duplicates}",
            f"runs        {verdict.declined} declined, {verdict.failed} failed, {verdict.expired} expired",
            f"settled     {self.settle_seconds:.1f} s after the last write{' (NOT settled)' if verdict.unsettled else ''}",
            f"doctor      {'clean' if verdict.clean else 'NOT clean'}",
            *(f"way         {way.name}: {way.came}" for way in self.ways),
            *(f"logs        {line}" for line in self.errors),
        ]
