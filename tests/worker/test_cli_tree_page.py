"""``mneme tree --html`` as a process: the file, its refusals, and hostile text that stays text."""

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.support.page import data_of, hashes_of, without_data
from tests.support.processes import mneme, run
from tests.support.snapshots import write
from tests.support.terminal import FORBIDDEN, HOSTILE, HOSTILE_ID

BREAKOUTS = "</script><script>alert(1)</script> <!-- <script> ]]> \"'`${x}$data &lt; \u2028\u2029 \u202eabc\u2066 \x01\x1b \ue000 👩‍👧"


def test_a_file_for_its_owner_alone(engine: Engine, environ: dict[str, str], tmp_path: Path) -> None:
    nodes = write(engine, "s", range(3))
    file = tmp_path / "page.html"
    file.write_text("old")
    file.chmod(0o644)
    done = run(mneme("tree", "s", "--html", "page.html"), environ, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    size = file.stat().st_size
    assert done.stdout == f"page.html: 3 nodes, {size:,} bytes, readable by you alone\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    told = data_of(file.read_text("utf-8"))["nodes"]
    assert [(one["id"], one["text"], one["from"]) for one in told] == [
        (str(one.id), one.content, str(one.span_start)) for one in nodes
    ]


def test_standard_output_gets_the_page_alone(engine: Engine, environ: dict[str, str]) -> None:
    write(engine, "s", [0])
    done = run(mneme("tree", "s", "--html", "-"), environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.endswith("</html>\n")


def test_hostile_text_is_in_the_data_alone(engine: Engine, environ: dict[str, str], tmp_path: Path) -> None:
    session_id = HOSTILE_ID + "</title><script>&"
    write(engine, session_id, [0], content=HOSTILE + BREAKOUTS)
    write(engine, session_id, [1], content=BREAKOUTS, model=BREAKOUTS)
    name = "p\x1b\u202e<.html"
    done = run(mneme("tree", session_id, "--html", name), environ, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("p\\x1b\\u202e<.html: 2 nodes, ")
    html = (tmp_path / name).read_text("utf-8")
    data = data_of(html)
    assert data["session"] == session_id
    assert [one["text"] for one in data["nodes"]] == [(HOSTILE + BREAKOUTS).replace("\0", ""), BREAKOUTS]
    assert data["nodes"][1]["model"] == BREAKOUTS
    assert not FORBIDDEN.search(html)
    assert "alert(1)" not in without_data(html)
    assert html.count("<script") == html.count("</script") == 2


def test_the_page_loads_nothing_and_its_policy_names_its_own_parts(engine: Engine, environ: dict[str, str]) -> None:
    write(engine, "s", [0], content="plain")
    html = run(mneme("tree", "s", "--html", "-"), environ).stdout
    assert re.findall(r"[a-z]+://[^\s\"']+", html) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(src|href|srcset|action)=|@import|innerHTML|\bstyle=|\bon[a-z]+=\"", html)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed.pop("default-src") == allowed.pop("base-uri") == allowed.pop("form-action") == "'none'"
    assert {allowed.pop("style-src")} == hashes_of(html, "style")
    assert {allowed.pop("script-src")} == hashes_of(html, "script")
    assert allowed == {}


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("no/page.html", "No such file or directory"),
        ("", "'' is not a file"),
        (".", "is not a file"),
        ("/dev/null", "is not a file"),
    ],
)
def test_places_where_nothing_can_be_written(
    file: str, reason: str, engine: Engine, environ: dict[str, str], tmp_path: Path
) -> None:
    write(engine, "s", [0])
    done = run(mneme("tree", "s", "--html", file), environ, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mneme: cannot write there: ")
    assert done.stderr.endswith(f"{reason}\n")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_unknown_and_empty_sessions(environ: dict[str, str], scalar: Callable[..., Any], tmp_path: Path) -> None:
    done = run(mneme("tree", "unknown", "--html", "x.html"), environ, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "mneme: there is no session 'unknown'\n")
    assert not list(tmp_path.iterdir())
    scalar("insert into mneme.sessions (id) values ('empty')")
    assert data_of(run(mneme("tree", "empty", "--html", "-"), environ).stdout) == {"session": "empty", "nodes": []}


@pytest.mark.parametrize(
    "other", [["--json"], ["--text"], ["--depth", "3"], ["--level", "1"], ["--limit", "50"]], ids=lambda other: other[0]
)
def test_it_shows_everything_and_goes_without_the_options_that_leave_out(
    other: list[str], environ: dict[str, str], tmp_path: Path
) -> None:
    done = run(mneme("tree", "s", "--html", "x.html", *other), environ, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"it goes without {other[0]}" in done.stderr
    assert not list(tmp_path.iterdir())
