"""``make chaos SEED=1 MINUTES=5``: see benchmarks/README.md."""

import argparse
import sys

from benchmarks.chaos.run import Plan, chaos
from benchmarks.rehearsal import rehearse


def main() -> int:
    """Run it, print what came of it, and return 1 if anything was lost, doubled, unsettled or unclean."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--snapshots", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=200)
    given = parser.parse_args()
    plan = Plan(given.seed, given.minutes * 60, given.snapshots, given.sessions)
    return rehearse("chaos", lambda directory, sockets, tell: chaos(plan, directory, sockets, tell))


if __name__ == "__main__":
    sys.exit(main())
