"""The rules of the run protocol, written down a second time: lists in memory, no SQL, no locks, one step after another.

Made from DESIGN, not from the code: where the two disagree, one of them is wrong.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

THRESHOLD, MOST, MAX_CRASHES, MAX_LEVEL = 3, 5, 4, 3

Retry = Literal["now", "later"] | None


@dataclass
class Node:
    id: Any
    level: int
    start: int
    end: int
    content: str
    superseded_by: Any = None
    dismissed: str | None = None

    @property
    def uncovered(self) -> bool:
        return self.superseded_by is None and self.dismissed is None

    @property
    def rides(self) -> bool:
        return self.superseded_by is None and self.dismissed == "declined"


@dataclass
class Run:
    level: int
    state: str = "running"
    attempt: int = 1
    content_failures: int = 0
    crashes: int = 0
    inputs: list[Any] = field(default_factory=list)
    retry: Retry = None
    lease_passed: bool = False
    id: Any = None
    node: Any = None


@dataclass
class Session:
    nodes: dict[Any, Node] = field(default_factory=dict)
    edges: dict[Any, list[Any]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    paused: bool = False

    # -------------------------------------------------------------------------------------------- what is due

    def waiting(self, level: int) -> list[Node]:
        return sorted((n for n in self.nodes.values() if n.level == level and n.uncovered), key=lambda n: n.start)

    def due_level(self) -> int | None:
        """The level to be made: that above the lowest one where enough wait."""
        return next((level + 1 for level in range(1, MAX_LEVEL) if len(self.waiting(level)) >= THRESHOLD), None)

    def newest(self, level: int) -> Run | None:
        return next((run for run in reversed(self.runs) if run.level == level), None)

    def leaves(self, node_id: Any) -> list[Any]:
        """The snapshots that a node stands for."""
        below = [leaf for parent in self.edges.get(node_id, []) for leaf in self.leaves(parent)]
        return below if node_id in self.edges else [node_id]

    # -------------------------------------------------------------------------------------------- claiming

    def claim(self) -> "tuple[str, Run | None]":
        """Return the outcome, and the run that was begun or, for a dismissal, closed at once."""
        level = self.due_level()
        if level is None:
            return "below_threshold", None
        before = self.newest(level)
        if before and before.state == "running" and not before.lease_passed:
            return "already_running", None
        if self.paused:
            return "paused", None
        if before and before.retry == "later":
            return "backing_off", None
        if before and before.state == "running":
            before.state, before.crashes = "expired", before.crashes + 1
        run = self._begin(level, before)
        if before and before.crashes >= MAX_CRASHES and before.state not in ("succeeded", "declined"):
            run.inputs = list(before.inputs)
            self._dismiss(run, "crashes")
            return "crashes", run
        run.inputs = [node.id for node in self._batch(level, before, run)]
        return "claimed", run

    def _begin(self, level: int, before: Run | None) -> Run:
        run = Run(level)
        if before:
            before.retry = None
            if before.state not in ("succeeded", "declined"):
                run.attempt = before.attempt + (before.state not in ("released", "cancelled"))
                run.content_failures, run.crashes = before.content_failures, before.crashes
        self.runs.append(run)
        return run

    def _batch(self, level: int, before: Run | None, run: Run) -> list[Node]:
        if before and (run.crashes >= 2 or run.content_failures > 0):
            again = [self.nodes[i] for i in before.inputs if self.nodes[i].uncovered]
            if len(again) >= 2:
                return sorted(again, key=lambda n: n.start)[: max(2, len(again) // 2)]
        batch = self.waiting(level - 1)[:MOST]
        riders = sorted(
            (n for n in self.nodes.values() if n.level == level - 1 and n.rides and n.start <= batch[-1].start),
            key=lambda n: n.start,
        )[: max(0, min(len(batch), MOST - len(batch)))]
        return sorted(batch + riders, key=lambda n: n.start)

    # -------------------------------------------------------------------------------------------- ending

    def commit(self, run: Run, node_id: Any, content: str) -> bool:
        """Write the node; say whether the run still had the right to."""
        parents = [self.nodes[i] for i in run.inputs]
        if run.state != "running" or not all(parent.uncovered or parent.rides for parent in parents):
            return False
        start, end = min(p.start for p in parents), max(p.end for p in parents)
        self.nodes[node_id] = Node(node_id, run.level, start, end, content)
        self.edges[node_id] = list(run.inputs)
        for parent in parents:
            parent.superseded_by, parent.dismissed = node_id, None
        run.node = node_id
        self._close(run, "succeeded")
        return True

    def decline(self, run: Run) -> bool:
        if run.state != "running":
            return False
        self._dismiss(run, "declined")
        return True

    def fail(self, run: Run, kind: str, retry: Retry) -> bool:
        if run.state != "running":
            return False
        run.content_failures += kind == "content"
        run.state, run.retry = "failed", retry
        return True

    def release(self, run: Run) -> bool:
        if run.state != "running":
            return False
        self._close(run, "released")
        return True

    def _dismiss(self, run: Run, reason: str) -> None:
        for node in (self.nodes[i] for i in run.inputs):
            if node.uncovered or node.rides:
                node.dismissed = reason
        self._close(run, "declined")

    def _close(self, run: Run, state: str) -> None:
        run.state = state
        if state in ("succeeded", "declined"):
            run.content_failures = run.crashes = 0
        # Still due, and held by nothing: that is left where the sweep finds it.
        run.retry = "now" if self.due_level() is not None else None

    # -------------------------------------------------------------------------------------------- sweeping

    def expire(self) -> int:
        dead = [run for run in self.runs if run.state == "running" and run.lease_passed]
        for run in dead:
            run.state, run.crashes, run.retry = "expired", run.crashes + 1, "now"
        return len(dead)

    def sweep(self) -> bool:
        """Forget retries of what is not due; say whether the session is enqueued."""
        if self.paused:
            return False
        level = self.due_level()
        if level is None:
            for run in self.runs:
                run.retry = None if run.retry == "now" else run.retry
            return False
        newest = self.newest(level)
        if any(run.level == level and (run.state == "running" or run.retry) for run in self.runs):
            for run in self.runs:
                if run.level != level and run.retry == "now":
                    run.retry = None
        return not newest or ((newest.state != "running" or newest.lease_passed) and newest.retry != "later")
