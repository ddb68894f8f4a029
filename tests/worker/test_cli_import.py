"""``mneme import`` as a process: all of LoCoMo, interrupted and resumed, and files with bad lines."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text

from tests.support.locomo import FILE, lines, needs_locomo
from tests.support.processes import clean_environ, mneme, run, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import active


@pytest.fixture
def database(database_url: str) -> dict[str, str]:
    """The settings of a process that knows of no broker."""
    return {"DATABASE_URL": database_url}


def everything(engine: Engine) -> list[Any]:
    """Return all that an import decides, in the order in which it was written."""
    statement = text("""
        select n.session_id, n.level, n.span_start, n.span_end, n.started_at, n.ended_at, n.token_count,
               n.reported_tokens, p.content
          from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
         order by n.created_at, n.id
    """)
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(statement)]


def empty(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("truncate mneme.sessions cascade"))


# ------------------------------------------------------------------------------------------------ all of LoCoMo


@needs_locomo
def test_all_of_locomo_and_again(engine: Engine, database: dict[str, str]) -> None:
    done = run(mneme("import", str(FILE)), database)
    assert (done.returncode, done.stdout) == (0, "168 written, 0 already there, 0 refused\n")
    assert done.stderr == "mneme: no broker is set (REDIS_URL): the sweep of a running beat will find what is due\n"
    first = everything(engine)
    assert [(row[0], row[2], row[3], row[-1]) for row in first] == [
        (line["session_id"], line["span_start"], line["span_end"], line["content"]) for line in lines()
    ]
    done = run(mneme("import", "--json", str(FILE)), database)
    assert json.loads(done.stdout) == {"written": 0, "already_there": 168, "refused": 0, "enqueued": 0}
    assert everything(engine) == first


@needs_locomo
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_interrupted_in_the_middle_and_run_again_it_is_as_if_never_interrupted(
    number: int, code: int, engine: Engine, database: dict[str, str], scalar: Callable[..., Any]
) -> None:
    assert run(mneme("import", str(FILE)), database).returncode == 0
    uninterrupted = everything(engine)
    empty(engine)

    half = b"".join(FILE.read_bytes().splitlines(keepends=True)[:100])
    with subprocess.Popen(
        mneme("import", "-"), env=clean_environ(database), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as importing:  # fmt: skip
        assert importing.stdin is not None
        importing.stdin.write(half)
        importing.stdin.flush()
        wait_until(lambda: scalar("select count(*) from mneme.summary_nodes") == 60)
        time.sleep(0.2)
        importing.send_signal(number)
        output, errors = importing.communicate(timeout=20)
    assert (importing.returncode, output) == (code, b"")
    if number == signal.SIGINT:
        assert errors == (b"mneme: interrupted: 60 written, 0 already there, 0 refused; running it again continues\n")
    assert scalar("select count(*) from mneme.summary_nodes") == 60

    done = run(mneme("import", str(FILE)), database)
    assert (done.returncode, done.stdout) == (0, "108 written, 60 already there, 0 refused\n")
    assert everything(engine) == uninterrupted


@needs_locomo
def test_killed_at_any_moment(engine: Engine, database: dict[str, str]) -> None:
    """Not only where the command waits for input: whatever it was doing, what stands there is a beginning of the file."""
    assert run(mneme("import", str(FILE)), database).returncode == 0
    uninterrupted = everything(engine)
    empty(engine)
    for after_seconds in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1):
        with subprocess.Popen(
            mneme("import", str(FILE)), env=clean_environ(database), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        ) as importing:  # fmt: skip
            time.sleep(after_seconds)
            importing.kill()
        found = everything(engine)
        assert found == uninterrupted[: len(found)]
    assert run(mneme("import", str(FILE)), database).returncode == 0
    assert everything(engine) == uninterrupted


# ------------------------------------------------------------------------------------------------ bad lines

GOOD: dict[str, Any] = {"session_id": "s", "span_start": 1, "span_end": 9, "content": "The secret decision."}


def good(number: int, **values: Any) -> bytes:
    span = {"span_start": number * 10, "span_end": number * 10 + 9}
    return json.dumps(GOOD | span | values).encode()


BAD = [
    (b'{"session_id": "s", "content": "The secret', "the line is not JSON: it goes wrong at column 32"),
    (b'["The secret decision."]', "the line is JSON, but not an object"),
    (json.dumps({k: v for k, v in GOOD.items() if k != "content"}).encode(), "the key content is missing"),
    (good(50, colour="The secret"), "the key 'colour' is unknown"),
    (good(50, span_start="500"), "span_start must be a whole number, not text"),
    (good(50, content=" \n "), "the content is blank"),
    (good(50, content="The secret decision. " * 2000), "the content has 42000 bytes, at most 32768 are allowed"),
    (good(50, span_start=510), "the span is reversed: span_start must not be greater than span_end"),
    (good(50, started_at="2026-03-01T09:00:00"), "started_at has no time zone"),
    (good(50, ended_at="some day"), "ended_at is no ISO 8601 time"),
    (good(50, started_at="2026-03-02T09:00Z", ended_at="2026-03-01T09:00Z"), "the times are reversed"),
    (good(1, content="The secret, changed."), "messages 10 to 19 of its session already have a snapshot with other content"),
    (good(50, session_id=""), "a session id must have 1 to 255 bytes, not 0"),
    (good(50, session_id="s\0"), "a session id must not hold NUL or lone surrogates"),
    (b'{"session_id": "s", "content": "The secret \xff"}', "the line is not valid UTF-8 (at byte 44)"),
    (good(50, token_count=-5), "token_count must lie between 0 and 2147483647"),
    (good(50, **{"\x1b[2J\u202e": 1}), "the key '\\x1b[2J\\u202e' is unknown"),
]  # fmt: skip


def test_each_kind_of_bad_line_is_named_by_number_and_every_good_line_imported(
    engine: Engine, database: dict[str, str], tmp_path: Path
) -> None:
    written, numbers = [good(1)], []
    for number, (bad, _) in enumerate(BAD, 2):
        numbers.append(len(written) + 1)
        written += [bad, good(number)]
    file = tmp_path / "bad.jsonl"
    file.write_bytes(b"\n".join(written) + b"\n")

    done = run(mneme("import", str(file)), database)
    assert done.returncode == 1
    assert done.stdout == f"{len(BAD) + 1} written, 0 already there, {len(BAD)} refused\n"
    told = done.stderr.splitlines()[:-1]  # the last one is about the broker
    assert len(told) == len(BAD) == 17
    for line, number, (_, reason) in zip(told, numbers, BAD, strict=True):
        assert line.startswith(f"line {number}: {reason}")
    assert "secret" not in done.stderr
    assert "\x1b" not in done.stderr
    assert [node.span_start for node in active(engine, "s")] == [n * 10 for n in range(1, len(BAD) + 2)]

    done = run(mneme("import", "--json", str(file)), database)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "written": 0, "already_there": len(BAD) + 1, "refused": len(BAD), "enqueued": 0,
    }  # fmt: skip
    assert done.stderr.splitlines()[:-1] == told


def test_a_file_of_which_everything_is_bad(database: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "noise"
    file.write_bytes(b"noise\n" * 1000)
    done = run(mneme("import", str(file)), database)
    assert (done.returncode, done.stdout) == (1, "0 written, 0 already there, 1,000 refused\n")
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [f"line {n}" for n in range(1, 1001)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_file(database: dict[str, str], tmp_path: Path) -> None:
    """A file of 300 MB, most of it one line."""
    file = tmp_path / "large"
    with file.open("wb") as output:
        output.write(good(1) + b"\n")
        for _ in range(300):
            output.write(b"x" * 1_000_000)
        output.write(b"\n" + good(2) + b"\n")
    script = (
        "import sys; from worker.cli import main\n"
        "try: main(sys.argv[1:])\n"
        # Not getrusage: its maximum survives exec, and so counts the memory of the test run that forked this.
        "finally: print(next(int(l.split()[1]) // 1024 for l in open('/proc/self/status') if l.startswith('VmHWM')))"
    )
    done = run([sys.executable, "-c", script, "import", str(file)], database)
    result, megabytes = done.stdout.splitlines()
    assert result == "2 written, 0 already there, 1 refused"
    assert done.stderr.startswith("line 2: the line is longer than 1048576 bytes\n")
    assert int(megabytes) < 150


# ------------------------------------------------------------------------------------------------ around it


def test_sessions_are_enqueued(broker: redis.Redis, environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_bytes(
        b"\n".join(good(n, session_id=f"s{n % 3}") for n in range(9)) + b"\n" + good(1, session_id="", span_end=99)
    )
    done = run(mneme("import", "--json", str(file)), environ)
    assert json.loads(done.stdout) == {"written": 9, "already_there": 0, "refused": 1, "enqueued": 3}
    assert broker.llen("mneme") == 3


def test_a_broker_that_is_down_is_left_to_the_sweep(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_bytes(good(1))
    done = run(mneme("import", str(file)), environ | {"REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"})
    assert (done.returncode, done.stdout) == (0, "1 written, 0 already there, 0 refused\n")
    assert done.stderr == "mneme: 1 of 1 sessions not enqueued: the sweep will find what is due\n"


def test_a_frozen_broker_costs_seconds(environ: dict[str, str], redis_frozen: str, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_bytes(b"\n".join(good(n, session_id=f"s{n}") for n in range(50)))
    begun = time.monotonic()
    done = run(mneme("import", str(file)), environ | {"REDIS_URL": redis_frozen})
    assert (done.returncode, done.stdout) == (0, "50 written, 0 already there, 0 refused\n")
    assert done.stderr == "mneme: 50 of 50 sessions not enqueued: the sweep will find what is due\n"
    assert time.monotonic() - begun < 45  # on a busy machine: without the bound it would be for ever


@pytest.fixture
def redis_frozen() -> Any:
    """A server that accepts connections and never says a word."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"redis://127.0.0.1:{silent.getsockname()[1]}/0"


def test_a_progress_bar_on_a_terminal_only(database: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_bytes(b"\n".join(good(n) for n in range(200)) + b"\nnoise\n")
    master, slave = pty.openpty()
    with subprocess.Popen(
        mneme("import", str(file)), env=clean_environ(database | {"TERM": "xterm"}), stdin=slave, stdout=subprocess.PIPE,
        stderr=slave,
    ) as importing:  # fmt: skip
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 65_536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            shown += piece
        output, _ = importing.communicate(timeout=20)
    os.close(master)
    assert (importing.returncode, output) == (1, b"200 written, 0 already there, 1 refused\n")
    assert b"importing" in shown
    assert b"100%" in shown
    assert b"\r\x1b[Kline 201: the line is not JSON" in shown
    assert b"importing" not in run(mneme("import", str(file)), database).stderr.encode()


def test_no_file_no_schema_no_database(database: dict[str, str], postgres: Any, tmp_path: Path) -> None:
    done = run(mneme("import", str(tmp_path / "absent")), database)
    assert (done.returncode, done.stdout) == (2, "")
    done = run(mneme("import", "-"), {})
    assert (done.returncode, done.stdout) == (2, "")
    assert "database.url is not set" in done.stderr
    done = run(mneme("import", "-"), {"DATABASE_URL": postgres.url("postgres")})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mneme: the database has no schema of mneme: run `mneme migrate`\n"
    done = run(mneme("import", "-"), {"DATABASE_URL": f"postgresql://x@127.0.0.1:{free_port()}/x"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


def test_an_empty_file(database: dict[str, str], tmp_path: Path) -> None:
    done = run(mneme("import", "-"), database)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 written, 0 already there, 0 refused\n", "")


def test_a_closed_input_and_a_full_output_are_told_in_a_sentence(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text('{"session_id": "s", "span_start": 1, "span_end": 2, "content": "Some words."}\n')
    closed = run(["sh", "-c", 'exec "$0" import - <&-', *mneme()], environ)
    assert (closed.returncode, closed.stdout) == (0, "0 written, 0 already there, 0 refused\n")
    for arguments in (["import", str(file)], ["tree", "s"], ["memory", "s", "--budget", "9"], ["status"]):
        full = run(["sh", "-c", 'exec "$0" "$@" > /dev/full', *mneme(*arguments)], environ)
        assert (full.returncode, full.stderr.splitlines()[-1]) == (1, "mneme: input or output: No space left on device")
        assert "Traceback" not in full.stderr
