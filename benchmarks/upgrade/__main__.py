"""``python -m benchmarks.upgrade --from REVISION [--snapshots N]``: see benchmarks/README.md."""

import argparse
import sys

from benchmarks.rehearsal import rehearse
from benchmarks.upgrade.run import Plan, upgrade


def main() -> int:
    """Run it, print what came of it, and return 1 if the upgrade was noticed by anybody."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.upgrade", description=__doc__)
    parser.add_argument("--from", dest="revision", required=True, help="the release before: a git revision")
    parser.add_argument("--snapshots", type=int, default=1_000, help="at least so many are written")
    given = parser.parse_args()
    plan = Plan(given.revision, given.snapshots)
    return rehearse("upgrade", lambda directory, sockets, tell: upgrade(plan, directory, sockets, tell))


if __name__ == "__main__":
    sys.exit(main())
