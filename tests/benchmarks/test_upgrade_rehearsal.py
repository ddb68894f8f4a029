"""A small ``make upgrade``: the release before and this one side by side."""

from pathlib import Path

import pytest

from benchmarks.upgrade.release import NoRelease
from benchmarks.upgrade.run import Plan, upgrade
from worker.embedded.servers import socket_directory

RELEASE_BEFORE = "a02fa26"
"""The last revision before the rehearsals were written; its schema is 0006. To be raised with each release."""


def test_a_small_upgrade(tmp_path: Path) -> None:
    plan = Plan(RELEASE_BEFORE, snapshots=100, workers=1, writes_each_second=60, folds_each_step=4)
    told: list[str] = []
    try:
        with socket_directory(tmp_path) as sockets:
            outcome = upgrade(plan, tmp_path, sockets, told.append)
    except NoRelease as shallow:
        pytest.skip(str(shallow))
    assert outcome.holds, f"{outcome}\n" + "\n".join(told)
    assert outcome.verdict.kept == len(outcome.written.ledger.written) >= 100
    assert set(outcome.written.by) == {"app-old", "app-new", "app-sql"}
    assert outcome.folds["both", "old"] >= 4 <= outcome.folds["both", "new"]


def test_a_revision_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoRelease, match="does not hold 0123456"):
        upgrade(Plan("0123456", snapshots=1), tmp_path, tmp_path, print)
