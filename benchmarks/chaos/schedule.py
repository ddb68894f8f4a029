"""What goes wrong when, and what is written when: both made from the seed alone."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "kill a worker", "freeze a worker past its lease", "stop a worker politely", "cut a worker off", "kill beat",
    "a second beat", "empty redis", "kill redis", "freeze redis", "restart postgres", "kill postgres", "end connections",
]  # fmt: skip
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]

# A killed worker is the commonest accident, and the one that the run protocol is about.
_WEIGHTS = [6, 4, 2, 2, 2, 1, 2, 2, 2, 1, 1, 2]


@dataclass(frozen=True)
class Fault:
    """One fault, so many seconds after the beginning; ``target`` is the number of the worker, where there is one."""

    at_seconds: float
    kind: Kind
    target: int


def faults(seed: int, seconds: float, every_seconds: float, workers: int) -> list[Fault]:
    """Return the faults of a run: each kind once, in random order, and then at random."""
    chance = random.Random(f"faults {seed}")
    first = iter(chance.sample(KINDS, len(KINDS)))
    found = []
    at = every_seconds
    while at < seconds:
        kind = next(first, None) or chance.choices(KINDS, _WEIGHTS)[0]
        found.append(Fault(at, kind, chance.randrange(workers)))
        at += every_seconds * chance.uniform(0.5, 1.5)
    return found


@dataclass(frozen=True)
class Write:
    """One thing that a writer does: *first* writes a snapshot, *again* repeats it, *conflict* writes other content there."""

    kind: Literal["first", "again", "conflict"]
    session_id: str
    number: int
    content: str
    late: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last message."""
        return self.number * 10 + 1, self.number * 10 + 10


_SAID = (
    "the agent chose Postgres 表 решение café 決定 after 17 builds and €120 — Zoë said: «not yet» 🧪 /srv/app.py deploy"
)


def writes(seed: int, snapshots: int, sessions: int, writers: int) -> list[list[Write]]:
    """Return what each writer does, in order: every snapshot once, some twice, some late, some with other content too."""
    chance = random.Random(f"writes {seed}")
    plans: list[list[Write]] = [[] for _ in range(writers)]
    for write in _shuffled_a_little(chance, list(_snapshots(chance, snapshots, sessions))):
        plan = plans[chance.randrange(writers)]
        plan.append(write)
        if chance.random() < 0.05:
            plan.append(Write("again", write.session_id, write.number, write.content))
        if chance.random() < 0.03:
            plan.append(Write("conflict", write.session_id, write.number, "Something else. " + write.content))
    return plans


def _snapshots(chance: random.Random, snapshots: int, sessions: int) -> Iterator[Write]:
    written = [0] * sessions
    for _ in range(snapshots):
        session = chance.randrange(sessions)
        number, written[session] = written[session], written[session] + 1
        said = " ".join(chance.choices(_SAID.split(), k=chance.randint(30, 90)))
        yield Write("first", f"chaos-{session}", number, f"Snapshot {number} of {session}: {said}")


def _shuffled_a_little(chance: random.Random, planned: list[Write]) -> list[Write]:
    """Put one in ten far behind its time: it arrives inside a range that was folded long ago."""
    for position, write in enumerate(planned):
        if chance.random() < 0.1:
            other = min(len(planned) - 1, position + chance.randint(1, len(planned) // 4))
            late = Write("first", write.session_id, write.number, write.content, late=True)
            planned[position], planned[other] = planned[other], late
    return planned
