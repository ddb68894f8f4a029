"""``mneme tree`` as a process: what it shows, in what bounds, and what never reaches the terminal."""

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from models.settings import Settings
from tasks import L2Runner
from tests.support.processes import clean_environ, mneme, run
from tests.support.snapshots import active, write
from tests.support.terminal import FORBIDDEN, HOSTILE, HOSTILE_ID, on_terminal


@pytest.fixture
def folded(engine: Engine, settings: Settings) -> str:
    """Two folds of five snapshots each, and two snapshots after them."""
    for start in (0, 5):
        write(engine, "s", range(start, start + 5))
        assert L2Runner("s", settings=settings, engine=engine).run().outcome == "folded"
    write(engine, "s", range(10, 12))
    return "s"


def tree(environ: dict[str, str], *arguments: str, **more: str) -> list[str]:
    done = run(mneme("tree", *arguments), environ | more)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n")
    return done.stdout[:-1].split("\n")


def test_a_folded_session(engine: Engine, environ: dict[str, str], folded: str) -> None:
    nodes = active(engine, "s")
    first, second, third, fourth = nodes
    lines = tree(environ, "s")
    assert lines[0] == "s"
    assert lines[1] == (
        f"|-- L2  messages 1 to 50  2026-03-01 to 2026-03-05  {first.token_count} tokens  {str(first.id)[:8]}"
    )
    for number, line in enumerate(lines[2:7]):
        stem = "|   `-- " if number == 4 else "|   |-- "
        assert line.startswith(f"{stem}L1  messages {number * 10 + 1} to {number * 10 + 10}  2026-03-0{number + 1}  ")
    assert lines[7].startswith(f"|-- L2  messages 51 to 100  2026-03-06 to 2026-03-10  {second.token_count} tokens")
    assert lines[13].startswith(f"|-- L1  messages 101 to 110  2026-03-11  {third.token_count} tokens")
    assert lines[14] == (f"`-- L1  messages 111 to 120  2026-03-12  {fourth.token_count} tokens  {str(fourth.id)[:8]}")
    after = sum(node.token_count or 0 for node in nodes)
    assert re.fullmatch(
        rf"12 snapshots, 2 folds; {after:,} tokens active now, [\d,]+ in all snapshots \(\d+%\)", lines[15]
    )
    assert len(lines) == 16


def test_limits(engine: Engine, environ: dict[str, str], folded: str) -> None:
    lines = tree(environ, "s", "--limit", "1")
    assert lines[1] == "(3 older roots not shown: --limit 4 shows all)"
    assert [line[:24] for line in lines[2:-1]] == ["`-- L1  messages 111 to "]
    lines = tree(environ, "s", "--level", "2", "--limit", "1", "--depth", "1")
    assert lines[1] == "(1 older root of level 2 and up not shown: --limit 2 shows all)"
    assert lines[2].startswith("`-- L2  messages 51 to 100  ")
    assert lines[2].endswith("  (5 below)")
    assert lines[3].startswith("12 snapshots, 2 folds; ")
    assert len(lines) == 4
    assert tree(environ, "s", "--level", "9")[1].startswith("12 snapshots")


def test_marks(engine: Engine, environ: dict[str, str], folded: str, scalar: Callable[..., Any]) -> None:
    nodes = active(engine, "s")
    scalar("update mneme.summary_nodes set degraded = true where id = :i", i=nodes[0].id)
    scalar(
        "update mneme.summary_nodes set dismissed_at = now(), dismissed_reason = 'declined' where id = :i",
        i=nodes[3].id,
    )
    lines = tree(environ, "s", "--depth", "1")
    assert lines[1].endswith(f"{str(nodes[0].id)[:8]}  degraded  (5 below)")
    assert lines[4].endswith(f"{str(nodes[3].id)[:8]}  dismissed (declined)")


def test_text_shows_the_first_words_only(engine: Engine, environ: dict[str, str], folded: str) -> None:
    assert "decision" not in "".join(tree(environ, "s"))
    line = tree(environ, "s", "--text")[-2]
    assert line.endswith('"Snapshot 11 of s: decision11 decision11 decision11..."')


def test_json(engine: Engine, environ: dict[str, str], folded: str) -> None:
    done = run(mneme("tree", "s", "--json", "--limit", "3"), environ)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    nodes = active(engine, "s")
    assert [root["id"] for root in found["roots"]] == [str(node.id) for node in nodes[1:]]
    assert (found["session_id"], found["older_roots"], found["snapshots"], found["folds"]) == ("s", 1, 12, 2)
    assert found["active_tokens"] == sum(node.token_count or 0 for node in nodes)
    root = found["roots"][0]
    assert set(root) == {
        "id", "level", "span_start", "span_end", "started_at", "ended_at", "token_count", "degraded", "dismissed_reason",
        "parent_count", "parents",
    }  # fmt: skip
    assert [parent["span_start"] for parent in root["parents"]] == [51, 61, 71, 81, 91]
    with_text = json.loads(run(mneme("tree", "s", "--json", "--text"), environ).stdout)
    assert with_text["roots"][-1]["opening"].startswith("Snapshot 11 of s: ")


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_does_not_reach_the_terminal(engine: Engine, environ: dict[str, str], terminal: bool) -> None:
    write(engine, HOSTILE_ID, [0], content=HOSTILE)
    command = mneme("tree", HOSTILE_ID, "--text")
    shown = on_terminal(command, environ) if terminal else run(command, environ).stdout
    assert not FORBIDDEN.search(shown), ascii(shown)
    lines = shown.rstrip("\n").split("\n")
    assert len(lines) == 3
    assert lines[0] == "s\\x1b[31m\\u202e\\n"
    # On a terminal the first words are cut to its width.
    assert ('"\\x1b[2J\\x1b]0;own' if terminal else '"\\x1b[2J\\x1b]0;owned\\x07one..."') in lines[1]
    assert ("└─ " if terminal else "`-- ") in lines[1]
    listed = run([*command, "--json"], environ).stdout
    assert listed.isascii()
    assert not FORBIDDEN.search(listed)
    assert json.loads(listed)["roots"][0]["opening"] == HOSTILE.replace("\0", "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_encoding_that_lacks_the_characters_is_no_error(
    encoding: str, engine: Engine, environ: dict[str, str]
) -> None:
    write(engine, "s", [0], content="Größe 日本")
    line = tree(environ, "s", "--text", PYTHONIOENCODING=encoding)[1] if encoding != "latin-1" else None
    if line is not None:
        assert line.endswith('"Größe 日本"' if encoding == "utf-8" else '"Gr\\xf6\\xdfe \\u65e5\\u672c"')
    else:
        done = subprocess.run(
            mneme("tree", "s", "--text"),
            env=clean_environ(environ | {"PYTHONIOENCODING": encoding}),
            capture_output=True,
        )
        assert done.returncode == 0
        assert '"Größe \\u65e5\\u672c"'.encode("latin-1") in done.stdout


def test_a_long_session_is_shown_in_part(engine: Engine, environ: dict[str, str]) -> None:
    write(engine, "s", range(300), content="x y z")
    lines = tree(environ, "s")
    assert lines[1] == "(250 older roots not shown: --limit 300 shows all)"
    assert len(lines) == 53
    assert len(tree(environ, "s", "--limit", "300")) == 302


def test_unknown_empty_and_impossible_sessions(environ: dict[str, str], scalar: Callable[..., Any]) -> None:
    done = run(mneme("tree", "un\x1bknown"), environ)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "mneme: there is no session 'un\\x1bknown'\n")
    done = run(mneme("tree", ""), environ)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mneme: a session id must have 1 to 255 bytes, not 0\n"
    scalar("insert into mneme.sessions (id) values ('empty')")
    assert tree(environ, "empty") == ["empty", "0 snapshots, 0 folds; 0 tokens active now, 0 in all snapshots"]


@pytest.mark.parametrize("arguments", [["--depth", "0"], ["--limit", "0"], ["--level", "0"], ["--limit", "x"]])
def test_wrong_usage(arguments: list[str], environ: dict[str, str]) -> None:
    done = run(mneme("tree", "s", *arguments), environ)
    assert (done.returncode, done.stdout) == (2, "")
