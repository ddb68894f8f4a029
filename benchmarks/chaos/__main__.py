"""``make chaos SEED=1 MINUTES=5``: see benchmarks/README.md."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.chaos.run import Plan, chaos
from worker.commands.up import Stopped, signals_raise
from worker.embedded.servers import socket_directory


def main() -> int:
    """Run it, print what came of it, and return 1 if anything was lost, doubled, unsettled or unclean."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--snapshots", type=int, default=10_000)
    parser.add_argument("--sessions", type=int, default=200)
    given = parser.parse_args()
    plan = Plan(given.seed, given.minutes * 60, given.snapshots, given.sessions)
    directory = Path(tempfile.mkdtemp(prefix="mneme-chaos-"))
    try:
        with signals_raise(), socket_directory(directory) as sockets:
            outcome = chaos(plan, directory, sockets, lambda line: print(line, file=sys.stderr, flush=True))
    except Stopped:
        shutil.rmtree(directory, ignore_errors=True)
        return 130
    print(outcome)
    if not outcome.holds:
        print(f"data and logs are kept in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
