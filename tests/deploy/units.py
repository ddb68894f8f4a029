"""What the units of deploy/systemd say."""

import re
from pathlib import Path

from tests.support.processes import ROOT

UNITS = ROOT / "deploy" / "systemd"
PROGRAMS = "/opt/mneme/current/bin/"


def exec_start(unit: Path) -> str:
    """Return the command of a unit, with continued lines joined."""
    return re.findall(r"^ExecStart=(.+)$", unit.read_text().replace("\\\n", ""), re.MULTILINE)[0]
