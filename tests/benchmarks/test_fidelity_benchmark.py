"""The benchmark of fidelity on a small file."""

import json
from pathlib import Path

import pytest

from benchmarks import fidelity

TOLD = (
    "On 3 May 2026 they said hello. Ada chose Postgres for ticket OPS-44{n}1 since Bob asked for it. It was fine. " * 3
)


def test_every_session_has_its_line_and_all_of_them_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "snapshots.jsonl"
    lines = [
        {"session_id": session, "span_start": n, "span_end": n, "content": TOLD.replace("{n}", str(n))}
        for session in ("a", "b")
        for n in range(6)
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    fidelity.main(file)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:3] for line in printed[1:]] == [["a", "6", "1"], ["b", "6", "1"], ["all", "12", "2"]]
    assert all(0 < int(line[5].rstrip("%")) <= 100 and line[6:] == ["100%", "0", "0"] for line in printed[1:])
