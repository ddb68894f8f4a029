"""A small ``make restore``: what was not in the backup is written again, and everything is folded once."""

from pathlib import Path

from benchmarks.restore.run import Plan, rehearse_restore
from worker.embedded.servers import socket_directory


def test_a_small_restore(tmp_path: Path) -> None:
    plan = Plan(folds_before=6, seconds_after=0.5, sessions=8, workers=1)
    told: list[str] = []
    with socket_directory(tmp_path) as sockets:
        outcome = rehearse_restore(plan, tmp_path, sockets, told.append)
    assert outcome.holds, f"{outcome}\n" + "\n".join(told)
    assert outcome.lost == outcome.anew > 0
    assert (outcome.there, outcome.there + outcome.anew) == (outcome.backup.snapshots, outcome.acknowledged)
    assert sum(outcome.held.values()) == len(outcome.backup.running) > 0
    assert len(outcome.ways) == 5
