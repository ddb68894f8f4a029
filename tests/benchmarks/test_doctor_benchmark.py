"""The doctor's benchmark runs, and what it fills the database with is a memory that the doctor finds clean."""

import sys

from models.doctor_rules import RULES
from tests.support.processes import run


def test_the_benchmark_fills_a_clean_memory_and_times_every_rule() -> None:
    done = run([sys.executable, "-m", "benchmarks.doctor", "15000"], {})
    assert (done.returncode, done.stderr) == (0, "")
    assert "80 sessions, 14,961 summary_nodes, " in done.stdout
    assert "in all; broken: []" in done.stdout
    timed = {line.split()[-1] for line in done.stdout.splitlines()}
    assert {rule.name for rule in RULES if rule.statement is not None} <= timed
