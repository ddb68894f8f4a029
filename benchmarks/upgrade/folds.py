"""Which release folded how much in which phase, by the process that each run names."""

import time
from collections import Counter
from datetime import datetime
from typing import Literal

import psycopg

from benchmarks.services import Services

Maker = Literal["old", "new"]

_FOLDS = """
    select split_part(worker, ':', 2)::integer, finished_at from mneme.compaction_runs where state = 'succeeded'
"""


class Folds:
    """Counts them; a phase begins when it is entered, by the database's clock."""

    def __init__(self, services: Services) -> None:
        self._url = services.url("postgres")
        self._makers: dict[int, Maker] = {}
        self._began: list[tuple[str, datetime | None]] = [("old", None)]

    def made_by(self, maker: Maker, pid: int) -> None:
        """Note whose process that is."""
        self._makers[pid] = maker

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        with psycopg.connect(self._url) as connection:
            row = connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        self._began.append((phase, row[0]))

    def counted(self) -> Counter[tuple[str, str]]:
        """Return how many were made by (phase, release); what no process of ours made stands under ``?``."""
        found: Counter[tuple[str, str]] = Counter()
        with psycopg.connect(self._url) as connection:
            for pid, at in connection.execute(_FOLDS).fetchall():
                phase = [name for name, began in self._began if began is None or began <= at][-1]
                found[phase, self._makers.get(pid, "?")] += 1
        return found

    def wait_for(self, maker: Maker, more: int, timeout_seconds: float = 60.0) -> None:
        """Wait until a release has made so many in the phase that was entered last.

        Raises:
            TimeoutError: it has not.
        """
        phase = self._began[-1][0]
        until = time.monotonic() + timeout_seconds
        while (made := self.counted()[phase, maker]) < more:
            if time.monotonic() > until:
                raise TimeoutError(f"{maker} workers made {made} of {more} folds in the phase {phase!r}")
            time.sleep(0.1)
