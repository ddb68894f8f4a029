"""``mneme sessions``, ``mneme runs`` and ``mneme config`` as processes."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli
from sqlalchemy import Engine

from models import load_settings
from tasks import L2Runner
from tests.models.test_claims import commit, decline, expire, fail, must_claim, try_claim
from tests.support.processes import mneme, run
from tests.support.snapshots import active, write
from tests.support.terminal import FORBIDDEN, HOSTILE_ID, on_terminal


@pytest.fixture
def command(environ: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda *arguments: run(mneme(*arguments), environ | {"MNEME_LLM__MODEL": "m"})


def columns(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    """Return the rows of a table by the names of its columns."""
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    starts = [match.start() for match in re.finditer(r"(?<![^ ] )(?<! [^ ])\S+(?: \S+)*", head)]
    names = [name.strip() for name in re.split(r" {2,}", head)]
    ends = [*starts[1:], 10_000]
    return [
        {name: line[a:b].strip() for name, a, b in zip(names, starts, ends, strict=True)} for line in lines
    ]  # fmt: skip


@pytest.fixture
def troubled(engine: Engine, scalar: Callable[..., Any]) -> None:
    """A session of every kind, those in trouble written first."""
    for session_id in ("given up", "failing", "running", "paused", "late", "due"):
        write(engine, session_id, range(5))
    for _ in range(5):
        must_claim(engine, "given up")
        expire(scalar)
    try_claim(engine, "given up")
    for _ in range(3):
        fail(engine, must_claim(engine, "failing"), "transient")
        scalar("update mneme.compaction_runs set retry_at = now() where retry_at > now()")
    scalar(
        "update mneme.compaction_runs set retry_at = now() + interval '9 min', error = 'no \x1b[31mluck' where retry_at is not null"
    )
    must_claim(engine, "running")
    scalar("update mneme.sessions set paused_at = now() where id = 'paused'")
    scalar("update mneme.summary_nodes set created_at = created_at - interval '3 h' where session_id = 'late'")
    write(engine, "settled", range(2))


def test_what_needs_attention_comes_first(troubled: None, command: Callable[..., Any]) -> None:
    rows = columns(command("sessions"))
    assert [row["session"] for row in rows][:3] == ["given up", "failing", "late"]
    assert rows[-1]["session"] == "settled"
    by = {row["session"]: row for row in rows}
    assert {session: row["state"] for session, row in by.items()} == {
        "given up": "settled", "failing": "backing off", "late": "due", "due": "due", "running": "already running",
        "paused": "paused", "settled": "settled",
    }  # fmt: skip
    assert (by["given up"]["given up"], by["given up"]["waiting"]) == ("2", "")
    assert (by["failing"]["attempt"], by["failing"]["error"]) == ("3", "transient: no \\x1b[31mluck")
    assert (by["late"]["waiting"], by["late"]["for"]) == ("5", "3 h")
    assert [row["session"] for row in columns(command("sessions", "--limit", "2"))] == ["given up", "failing"]
    found = json.loads(command("sessions", "--json").stdout)
    assert [row["session_id"] for row in found] == [row["session"] for row in rows]
    assert found[1]["error_kind"] == "transient"


def test_extracts_in_place_of_an_answer_are_listed(
    engine: Engine, command: Callable[..., Any], environ: dict[str, str], scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    L2Runner("s", settings=load_settings(environ), engine=engine).run()
    scalar("update mneme.summary_nodes set degraded = true where level = 2")
    (row,) = columns(command("sessions"))
    assert (row["session"], row["state"], row["degraded"]) == ("s", "settled", "1")


def test_runs_of_all_and_of_one(troubled: None, engine: Engine, command: Callable[..., Any]) -> None:
    commit(engine, must_claim(engine, "late"))
    decline(engine, must_claim(engine, "due"))
    rows = columns(command("runs"))
    assert rows[0]["session"] == "running"
    assert (rows[0]["state"], rows[0]["nodes"]) == ("running", "5")
    assert [(row["session"], row["state"]) for row in rows[1:3]] == [("due", "declined"), ("late", "succeeded")]
    assert rows[2]["node"] == str(active(engine, "late")[0].id)[:8]
    assert rows[2]["tokens"] == "5"
    assert [row["state"] for row in rows].count("expired") == 5
    failing = columns(command("runs", "failing", "--limit", "2"))
    assert [(row["state"], row["attempt"]) for row in failing] == [("failed", "3"), ("failed", "2")]
    assert failing[0]["why"] == "transient: no \\x1b[31mluck; again in 9 min"
    found = json.loads(command("runs", "failing", "--json").stdout)
    assert [row["attempt"] for row in found] == [3, 2, 1]
    assert found[0]["finished_at"].endswith("+00:00")


def test_nothing_to_list(command: Callable[..., Any], scalar: Callable[..., Any]) -> None:
    assert command("sessions").stdout == "there is no session\n"
    assert command("runs").stdout == "nothing was folded yet\n"
    assert (json.loads(command("sessions", "--json").stdout), json.loads(command("runs", "--json").stdout)) == ([], [])
    scalar("insert into mneme.sessions (id) values ('s')")
    assert command("runs", "s").stdout == "nothing was folded yet\n"
    done = command("runs", "no\x1b such")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "mneme: there is no session 'no\\x1b such'\n")
    assert command("sessions", "--limit", "0").returncode == 2


def test_hostile_names_and_narrow_terminals(engine: Engine, environ: dict[str, str]) -> None:
    write(engine, HOSTILE_ID, range(5))
    fail(engine, must_claim(engine, HOSTILE_ID), "transient")
    for arguments in (("sessions",), ("runs",)):
        shown = on_terminal(mneme(*arguments), environ | {"COLUMNS": "60"})
        assert not FORBIDDEN.search(shown), ascii(shown)
        assert max(map(len, shown.splitlines())) <= 60


def test_the_settings_in_effect_and_where_they_came_from(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[mneme]\nmax_tokens = 1000\n[llm]\nheaders = {x-team = 'memory'}\n")
    environ = {
        "MNEME_CONFIG": str(file), "DATABASE_URL": "postgresql://u:hunter2@h/d", "MNEME_WORKER__CONCURRENCY": "3",
        "REDIS_URL": "redis://:hunter2@h:6379/0", "OPENAI_API_KEY": "sk-hunter2", "OPENAI_BASE_URL": "http://u:hunter2@h/v1",
        "MNEME_LLM__EXTRA_BODY": '{"key": "hunter2"}',
    }  # fmt: skip
    done = run(mneme("config"), environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hunter2" not in done.stdout
    told = tomli.loads(done.stdout)
    assert told["mneme"]["max_tokens"] == 1000
    assert told["llm"]["headers"] == {"x-team": "(not shown)"}
    assert told["database"]["url"] == "postgresql+psycopg://u:***@h/d"
    lines = {line.split(" = ")[0]: line for line in done.stdout.splitlines() if " = " in line}
    assert lines["max_tokens"].endswith(f"# {file}")
    assert lines["concurrency"].endswith("# MNEME_WORKER__CONCURRENCY")
    assert lines["max_level"].endswith("# default")
    assert "# model is not set" in done.stdout
    assert done.stdout.endswith("\n# OPENAI_API_KEY is set\n")
    found = json.loads(run(mneme("config", "--json"), environ).stdout)
    assert {"section": "mneme", "key": "max_tokens", "value": 1000, "source": str(file)} in found
    wrong = run(mneme("config"), environ | {"MNEME_WORKER__CONCURRENCY": "0"})
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "worker.concurrency in MNEME_WORKER__CONCURRENCY" in wrong.stderr
