"""``mneme doctor`` as a process: what it shows, its exit codes, and what never reaches the terminal."""

import json
import signal
import subprocess
from typing import Any

import pytest
from sqlalchemy import Engine, text

from models.doctor_rules import RULES
from tests.support.doctoring import bypass, small_memory
from tests.support.processes import clean_environ, mneme, run, wait_until
from tests.support.snapshots import write
from tests.support.terminal import FORBIDDEN, HOSTILE_ID, on_terminal


@pytest.fixture
def ids(engine: Engine) -> dict[str, Any]:
    return small_memory(engine)


def test_a_clean_memory(environ: dict[str, str], ids: dict[str, Any]) -> None:
    done = run(mneme("doctor"), environ)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert last == f"All {len(RULES)} rules hold."
    assert [line[:15].rstrip() for line in lines] == [
        "ok" if rule.statement is not None else "by the schema" for rule in RULES
    ]
    assert [line[15:].split()[0] for line in lines] == [rule.name for rule in RULES]
    assert all(rule.must_hold in line for rule, line in zip(RULES, lines, strict=True))
    assert "a superseded node is neither dismissed nor retired (summary_nodes_superseded_alone)" in done.stdout
    assert done.stdout.isascii()


def test_broken_rules(engine: Engine, environ: dict[str, str], ids: dict[str, Any]) -> None:
    bypass(engine, "update mneme.summary_nodes set superseded_by = null where id = :one", ids)
    write(engine, "s", range(7, 12))
    bypass(engine, "update mneme.summary_nodes set token_count = token_count + 1 where session_id = 's'", ids)
    done = run(mneme("doctor"), environ)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if " parents_are_superseded " in line)
    assert lines[at].startswith("1 BROKEN       parents_are_superseded")
    assert lines[at + 1 : at + 3] == [
        f"    nodes: {ids['one']}",
        "    It would be folded again: set its superseded_by to the node that was made from it.",
    ]
    at = next(number for number, line in enumerate(lines) if " tokens_are_estimated " in line)
    assert lines[at].startswith("8 BROKEN  ")
    assert lines[at + 1].count("-") == 5 * 4
    assert lines[at + 1].endswith(" and 3 more")
    assert lines[-1] == f"2 of {len(RULES)} rules are broken, with 9 violations."
    assert "decision" not in done.stdout


def test_json(engine: Engine, environ: dict[str, str], ids: dict[str, Any]) -> None:
    done = run(mneme("doctor", "--json"), environ)
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr, found["clean"]) == (0, "", True)
    assert [rule["rule"] for rule in found["rules"]] == [rule.name for rule in RULES]
    bypass(engine, "delete from mneme.message_parts where message_id = :waiting", ids)
    done = run(mneme("doctor", "--json"), environ)
    found = json.loads(done.stdout)
    assert (done.returncode, found["clean"]) == (1, False)
    broken = [rule for rule in found["rules"] if rule["violations"]]
    advice = "Without its text part it is missing from memory: bring the parts back from a backup."
    assert broken == [{
        "rule": "node_has_parts", "status": "broken", "violations": 1, "ids_of": "node", "first_ids": [str(ids["waiting"])],
        "must_hold": "the message of a node has a text part, a compaction part and no other", "missing": [],
        "enforced_by": ["constraint message_parts_message_id_fkey of message_parts"], "advice": advice,
    }]  # fmt: skip


def test_what_the_schema_lacks_is_named(engine: Engine, environ: dict[str, str]) -> None:
    off, on = (f"alter table mneme.summary_edges {word} trigger edges_checked" for word in ("disable", "enable"))
    with engine.begin() as connection:
        connection.execute(text(off))
    try:
        done = run(mneme("doctor"), environ)
    finally:
        with engine.begin() as connection:
            connection.execute(text(on))
    assert done.returncode == 1
    assert "\n    missing or not in force: trigger edges_checked of summary_edges\n" in done.stdout
    assert done.stdout.endswith(f"1 of {len(RULES)} rules are broken, with 1 violation.\n")


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_session_ids_do_not_reach_the_terminal(engine: Engine, environ: dict[str, str], terminal: bool) -> None:
    write(engine, HOSTILE_ID, range(5))
    bypass(engine, "update mneme.summary_nodes set swept_at = now()", {})
    command = mneme("doctor")
    shown = (
        on_terminal(["sh", "-c", f"{command[0]} doctor || true"], environ) if terminal else run(command, environ).stdout
    )
    assert not FORBIDDEN.search(shown), ascii(shown)
    assert "    sessions: s\\x1b[31m\\u202e\\n\n" in shown
    listed = json.loads(run(mneme("doctor", "--json"), environ).stdout)
    assert [rule["first_ids"] for rule in listed["rules"] if rule["violations"]] == [[HOSTILE_ID]]


def test_ctrl_c_is_clean(engine: Engine, environ: dict[str, str]) -> None:
    with engine.begin() as blocker:
        blocker.execute(text("lock table mneme.summary_edges in access exclusive mode"))
        process = subprocess.Popen(
            mneme("doctor"), env=clean_environ(environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_until(lambda: blocker.execute(text("select count(*) from pg_locks where not granted")).scalar())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "mneme: interrupted: nothing was judged\n")


def test_wrong_configuration_and_no_database(environ: dict[str, str]) -> None:
    done = run(mneme("doctor"), {})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mneme: database.url is not set")
    done = run(mneme("doctor"), environ | {"DATABASE_URL": environ["DATABASE_URL"].replace("mneme_test", "postgres")})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mneme: the database has no schema of mneme: run `mneme migrate`\n"
    done = run(mneme("doctor"), environ | {"DATABASE_URL": "postgresql://postgres@127.0.0.1:1/x"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("mneme: database: out of reach")
    assert run(mneme("doctor", "extra"), environ).returncode == 2
