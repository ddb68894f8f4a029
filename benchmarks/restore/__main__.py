"""``python -m benchmarks.restore``: see docs/upgrading.md."""

import sys

from benchmarks.rehearsal import rehearse
from benchmarks.restore.run import Plan, rehearse_restore

if __name__ == "__main__":
    sys.exit(rehearse("restore", lambda directory, sockets, tell: rehearse_restore(Plan(), directory, sockets, tell)))
