"""What came of an upgrade, as lines to be read, and whether it holds."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.chaos.verdict import Verdict
from benchmarks.rehearsal import Report
from benchmarks.upgrade.migration import Migration
from benchmarks.upgrade.producers import Written


@dataclass(frozen=True)
class Outcome(Report):
    """``folds`` by (phase, release); ``troubles`` and ``warnings`` are lines of logs; ``problems`` is what else went wrong."""

    revision: str
    code: str
    written: Written
    migration: Migration
    verdict: Verdict
    folds: Counter[tuple[str, str]]
    settle_seconds: float
    troubles: tuple[str, ...]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def failures(self) -> list[str]:
        """Why it does not hold; empty when it does."""
        verdict, migration = self.verdict, self.migration
        found = list(self.problems)
        found += [] if verdict.holds else ["snapshots or folds are not as they should be, or did not settle"]
        found += (
            [f"{verdict.failed} runs failed, {verdict.expired} expired"] if verdict.failed + verdict.expired else []
        )
        found += ["the migration had to be tried again"] if migration.attempts > 1 else []
        found += ["a log tells of errors"] if self.troubles else []
        found += ["folds of a worker that nobody started"] if any(maker == "?" for _, maker in self.folds) else []
        both = self.folds["both", "old"] and self.folds["both", "new"]
        return found if both else [*found, "the releases did not fold side by side"]

    @property
    def lines(self) -> list[str]:
        """What is printed before the judgement."""
        verdict, folds, migration, written = self.verdict, self.folds, self.migration, self.written
        by = ", ".join(f"{count:,} by {name}" for name, count in sorted(written.by.items()))
        return [
            f"from        {self.revision} (schema {migration.before}) to this code (schema {migration.after})",
            f"code        old workers ran {self.code}",
            f"migration   {migration.seconds:.1f} s, {migration.attempts} attempt(s), while {len(migration.held)} writers held"
            f" transactions open: {migration.said}",
            f"snapshots   {len(written.ledger.written):,} written ({by}; {written.ledger.again:,} again),"
            f" {verdict.kept:,} kept byte for byte; the longest write took {written.longest_seconds:.1f} s",
            f"lost        {verdict.lost}",
            f"duplicates  {verdict.duplicates}",
            f"unexpected  {verdict.unexpected} {'; '.join(written.ledger.faults[:3])}".rstrip(),
            f"folds       {verdict.folds:,}: old alone {folds['old', 'old']}, old after the migration"
            f" {folds['old after it', 'old']}, side by side {folds['both', 'old']} by old and {folds['both', 'new']} by new,"
            f" then {folds['new alone', 'old']} by old ending and {folds['new alone', 'new']} by new",
            f"runs        {verdict.declined} declined, {verdict.failed} failed, {verdict.expired} expired",
            f"settled     {self.settle_seconds:.1f} s after the last write{' (NOT settled)' if verdict.unsettled else ''}",
            f"doctor      {'clean' if verdict.clean else 'NOT clean'}",
            *_told("errors", self.troubles),
            *_told("warnings", self.warnings),
        ]


def _told(what: str, lines: Iterable[str]) -> list[str]:
    return [f"{what:<11} {line}" for line in lines] or [f"{what:<11} none"]
