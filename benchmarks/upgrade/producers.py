"""The main apps of a rehearsal, in processes of their own, and what they say they have written."""

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.writers import Ledger
from benchmarks.services import Services

PROGRAM = Path(__file__).with_name("producer.py")


@dataclass
class Written:
    """What the producers told so far."""

    ledger: Ledger = field(default_factory=Ledger)
    by: Counter[str] = field(default_factory=Counter)
    longest_seconds: float = 0.0
    code: dict[str, str] = field(default_factory=dict)


class Producers:
    """Old and new main apps, which write until they are told to stop."""

    def __init__(self, services: Services, sessions: int, each_every_seconds: float) -> None:
        self._services, self._sessions, self._every = services, sessions, each_every_seconds
        self._stop = services.directory / "stop-writing"
        self._names: list[str] = []

    def start(self, name: str, how: str, release: Path | None = None) -> None:
        """Start one that has the client of a release, by default of this one."""
        arguments = [name, how, str(self._sessions), str(self._every), str(self._stop)]
        self._services.start_program(name, [sys.executable, "-P", str(PROGRAM), *arguments], release)
        self._names.append(name)

    def stop(self) -> None:
        """Have them end after the write that they are at."""
        self._stop.touch()
        for name in self._names:
            self._services.children[name].process.wait(30)

    @property
    def running(self) -> bool:
        """Whether all of them still write."""
        return not any(self._services.children[name].has_ended for name in self._names)

    def written(self) -> Written:
        """Return what they have told by now."""
        found = Written()
        for name in self._names:
            for line in self._services.children[name].log.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.startswith("{") and line.endswith("}\n"):
                    self._take(name, json.loads(line), found)
                elif line.endswith("\n") and not line[0].isspace():
                    found.ledger.faults.append(f"{name}: {line.strip()}")
        return found

    @staticmethod
    def _take(name: str, told: dict[str, str], found: Written) -> None:
        if "code" in told:
            found.code[name] = told["code"]
            return
        if "error" in told:
            found.ledger.faults.append(f"{name}: {told['error']}")
        if "took" in told:
            found.longest_seconds = max(found.longest_seconds, float(told["took"]))
            found.ledger.written[told["session_id"], int(told["number"])] = told["content"]
            found.by[name] += 1
            found.ledger.again += bool(told["again"])
