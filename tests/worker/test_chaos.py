"""A small ``make chaos``: every kind of fault at least once, and nothing lost or folded twice."""

from pathlib import Path

from benchmarks.chaos.run import Plan, chaos
from benchmarks.chaos.schedule import KINDS, faults, writes
from worker.embedded.servers import socket_directory


def test_the_seed_alone_makes_the_schedule() -> None:
    assert faults(1, 300, 4, 4) == faults(1, 300, 4, 4) != faults(2, 300, 4, 4)
    assert writes(1, 500, 20, 4) == writes(1, 500, 20, 4) != writes(2, 500, 20, 4)
    assert {fault.kind for fault in faults(3, 30, 2, 4)} <= set(KINDS)
    planned = [write for plan in writes(1, 1000, 20, 4) for write in plan]
    assert sum(write.kind == "first" for write in planned) == 1000
    assert len({(write.session_id, write.number) for write in planned}) == 1000
    assert {write.kind for write in planned} == {"first", "again", "conflict"}
    assert any(write.late for write in planned)


def test_a_small_chaos(tmp_path: Path) -> None:
    plan = Plan(seed=11, seconds=32, snapshots=400, sessions=20, fault_every_seconds=2.2)
    told: list[str] = []
    with socket_directory(tmp_path) as sockets:
        outcome = chaos(plan, tmp_path, sockets, told.append)
    assert outcome.holds, f"{outcome}\n" + "\n".join(told)
    assert (outcome.verdict.kept, outcome.verdict.lost, outcome.verdict.duplicates) == (400, 0, 0)
    assert {kind for kind, times in outcome.injected.items() if times} == set(KINDS)
    assert outcome.verdict.folds > 20
    assert outcome.ledger.refused > 3
