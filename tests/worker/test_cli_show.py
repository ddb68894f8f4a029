"""``mneme show`` as a process: a node with its lineage, its run and its fidelity; and ids that name none, or several."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from models import load_settings
from models.settings import Settings
from tasks import L2Runner
from tests.support import model_server as says
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import mneme, run
from tests.support.snapshots import active, node, write
from tests.support.terminal import FORBIDDEN, HOSTILE, HOSTILE_ID, on_terminal

SUMMARY = "Ada chose Postgres on 2026-03-02 and Zoltan owns ticket MN-4711."


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
def asking(environ: dict[str, str], server: ModelServer) -> Settings:
    server.answer = says.saves(SUMMARY)
    return load_settings(environ | {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url})


def show(environ: dict[str, str], *arguments: str) -> tuple[dict[str, list[str]], str]:
    """Return the lines of each name, and the text below them."""
    done = run(mneme("show", *arguments), environ)
    assert (done.returncode, done.stderr) == (0, "")
    head, text = done.stdout.split("\n\n", 1)
    lines: dict[str, list[str]] = {}
    name = ""
    for line in head.split("\n"):
        name = line[:12].strip() or name
        lines.setdefault(name, []).append(line[12:])
    return lines, text


def test_a_fold_with_its_lineage_its_run_and_its_fidelity(
    engine: Engine, environ: dict[str, str], asking: Settings
) -> None:
    told = "In the office Ada decided for Postgres on 2026-03-02 and wrote to Bob about the plan. " * 3
    below = write(engine, "s", range(5), content=told)
    fold = node(engine, L2Runner("s", settings=asking, engine=engine).run().node)
    lines, text = show(environ, str(fold.id)[:9])
    assert text == SUMMARY + "\n"
    assert lines["node"] == [str(fold.id)]
    assert (lines["session"], lines["level"], lines["state"]) == (["s"], ["2, messages 1 to 50"], ["active"])
    assert lines["told"] == ["2026-03-01 09:00 to 2026-03-05 10:00 UTC"]
    before = sum(parent.token_count or 0 for parent in below)
    share = f"{(fold.token_count or 0) / before:.0%}"
    assert lines["tokens"] == [f"{fold.token_count} estimated, {share} of the {before:,} that it was made from"]
    assert re.fullmatch(r"20\d\d-.* UTC, by m, prompt l2-\S+", lines["written"][0])
    assert re.fullmatch(rf"{fold.run_id}: succeeded, attempt 1, 1 calls, 700 \+ 40 tokens, \d+\.\d s", lines["run"][0])
    # Of Ada, Postgres, Bob and the date Bob is lost; Zoltan and the ticket came from nowhere.
    assert lines["fidelity"] == [
        "75% of its parents' names, numbers, dates and addresses survive",
        "50% of its own stand in them, 2 in none",
    ]
    assert lines["made from"] == [
        f"L1  messages {parent.span_start} to {parent.span_end}  {parent.token_count} tokens  {parent.id}  superseded"
        for parent in below
    ]
    assert "above it" not in lines
    under, text = show(environ, str(below[0].id))
    assert text == told + "\n"
    assert under["state"] == [f"superseded by {fold.id}"]
    assert under["above it"] == [f"L2  messages 1 to 50  {fold.token_count} tokens  {fold.id}  active  (5 below)"]
    assert "run" not in under
    assert "fidelity" not in under


def test_a_secret_that_was_taken_out_is_counted(
    engine: Engine, environ: dict[str, str], asking: Settings, server: ModelServer
) -> None:
    write(engine, "s", range(5))
    server.answer = says.saves(f"The key is sk-{'a1' * 20}.")
    fold = node(engine, L2Runner("s", settings=asking, engine=engine).run().node)
    lines, text = show(environ, str(fold.id))
    assert lines["fidelity"][-1] == "1 taken out of it as secrets"
    assert text == "The key is [secret removed].\n"


def test_extracts_dismissed_and_retired_nodes_say_so(
    engine: Engine, environ: dict[str, str], scalar: Callable[..., Any]
) -> None:
    write(engine, "s", range(5))
    fold = L2Runner("s", settings=load_settings(environ), engine=engine).run().node
    assert show(environ, str(fold))[0]["written"][0].endswith(", an extract")
    scalar("update mneme.summary_nodes set degraded = true where id = :i", i=fold)
    assert show(environ, str(fold))[0]["state"] == ["active, degraded: to be redone by mneme repair"]
    (loose,) = write(engine, "s", [7])
    scalar(
        "update mneme.summary_nodes set dismissed_at = '2026-05-01 01:00+02', dismissed_reason = 'declined' where id = :i",
        i=loose.id,
    )
    assert show(environ, str(loose.id))[0]["state"] == ["active, dismissed on 2026-04-30: declined"]
    scalar(
        "update mneme.summary_nodes set dismissed_at = null, dismissed_reason = null, retired_at = '2026-05-02 01:00+02',"
        " retired_reason = 'restored' where id = :i", i=loose.id,
    )  # fmt: skip
    assert show(environ, str(loose.id))[0]["state"] == ["retired on 2026-05-01: restored"]


def test_json(engine: Engine, environ: dict[str, str], asking: Settings) -> None:
    below = write(engine, "s", range(5))
    fold = node(engine, L2Runner("s", settings=asking, engine=engine).run().node)
    done = run(mneme("show", str(fold.id), "--json"), environ)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert set(found) == {"node", "parents", "successors", "run"}
    assert found["node"]["content"] == SUMMARY
    assert found["node"]["fidelity"] == dict(fold.fidelity or {})
    assert found["node"]["started_at"] == "2026-03-01T09:00:00+00:00"
    assert [parent["id"] for parent in found["parents"]] == [str(parent.id) for parent in below]
    assert (found["run"]["llm_calls"], found["run"]["prompt_tokens"]) == (1, 700)
    leaf = json.loads(run(mneme("show", str(below[0].id), "--json"), environ).stdout)
    assert ([each["id"] for each in leaf["successors"]], leaf["run"]) == ([str(fold.id)], None)


def test_ids_that_name_none_or_several(engine: Engine, environ: dict[str, str]) -> None:
    alike = [UUID(f"abcdef00-0000-4000-8000-00000000000{digit}") for digit in range(3)]
    for number, node_id in enumerate(alike):
        write(engine, "s", [number], id=node_id)
    assert active(engine, "s")[0].id == alike[0]
    for given, code, told in (
        ("abcd", 1, f"mneme: several nodes begin with abcd: {', '.join(map(str, alike))}\n"),
        ("abce", 1, "mneme: there is no node abce\n"),
        ("abc", 2, "mneme: 'abc' is no node id: expected at least its first four hex digits, as `mneme tree` shows\n"),
        ("", 2, "mneme: '' is no node id: expected at least its first four hex digits, as `mneme tree` shows\n"),
        ("l2 \x1b[2J", 2, "mneme: 'l2 \\x1b[2J' is no node id: expected"),
        ("a" * 33, 2, f"mneme: '{'a' * 33}' is no node id: expected"),
    ):
        done = run(mneme("show", given), environ)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(told)
    assert run(mneme("show", "ABCDEF00-0000-4000-8000-000000000002"), environ).returncode == 0


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_does_not_reach_the_terminal(engine: Engine, environ: dict[str, str], terminal: bool) -> None:
    (written,) = write(engine, HOSTILE_ID, [0], content=HOSTILE, model="m\x1b[31m", prompt_version="\u202ev")
    command = mneme("show", str(written.id))
    shown = on_terminal(command, environ) if terminal else run(command, environ).stdout.split("\n\n")[0]
    assert not FORBIDDEN.search(shown), ascii(shown)
    assert "s\\x1b[31m\\u202e\\n" in shown


def test_a_piped_text_is_what_was_written(engine: Engine, environ: dict[str, str]) -> None:
    (written,) = write(engine, "s", [0], content="Größe\t日本\nzweite Zeile")
    assert show(environ | {"PYTHONIOENCODING": "ascii"}, str(written.id))[1] == "Größe\t日本\nzweite Zeile\n"
