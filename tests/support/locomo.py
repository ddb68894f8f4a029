"""The LoCoMo snapshots, read from beside the checkout; tests that need them are skipped where they are absent."""

import json
from typing import Any

import pytest

from tests.support.processes import ROOT

FILE = ROOT.parent / "shared" / "data" / "locomo" / "snapshots.jsonl"

needs_locomo = pytest.mark.skipif(not FILE.exists(), reason=f"the LoCoMo snapshots are not at {FILE}")


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
