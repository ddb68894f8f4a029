"""A key in the environment, passwords in every URL, and a key in a snapshot: none of them is seen anywhere but in the snapshot."""

import json
import signal
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from models import load_settings
from tasks.broker import publish
from tests.support import model_server as says
from tests.support.broker import own_redis
from tests.support.model_server import Call, model_server
from tests.support.processes import celery, debugged_worker, log_lines, mneme, process, run, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import active, all_runs, write
from tests.worker.test_flower import LOGIN, get, is_up

KEY = "sk-planted0environment0123456789abcdef"
IN_SNAPSHOT = "sk-planted1snapshot0123456789abcdef012"
POSTGRES, REDIS, HEADER = "planted2postgres", "planted3redis", "planted4header"
SECRETS = (KEY, IN_SNAPSHOT, POSTGRES, REDIS, HEADER)
COMMANDS = [
    ["config"], ["config", "--json"], ["status"], ["status", "--json"], ["sessions"], ["sessions", "--json"], ["runs"],
    ["runs", "--json"], ["metrics", "--once"], ["doctor"], ["tree", "folds"], ["enqueue", "folds"], ["sweep"],
    ["retry", "fails"], ["repair"], ["backfill"], ["pause", "folds"], ["resume", "folds"],
]  # fmt: skip


def answer(call: Call) -> None:
    if "of fails" in call.user:
        call.send(401, json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}; said {IN_SNAPSHOT}"}}))
    else:
        says.saves(f"The key is {IN_SNAPSHOT}, and theirs {KEY}.")(call)


def test_no_secret_is_seen_anywhere(engine: Engine, environ: dict[str, str], tmp_path: Path) -> None:
    for session_id in ("folds", "fails"):
        write(
            engine,
            session_id,
            range(5),
            content=f"Ada of {session_id} said that the key is {IN_SNAPSHOT}, and left. " * 9,
        )
    seen: dict[str, str] = {}
    with model_server() as server, own_redis(tmp_path / "redis.log", REDIS) as own:
        server.answer = answer
        planted = environ | {
            "DATABASE_URL": environ["DATABASE_URL"].replace("postgres@", f"postgres:{POSTGRES}@"),
            "REDIS_URL": own.url, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "MNEME_LLM__MODEL": "m",
            "MNEME_LLM__HEADERS": json.dumps({"x-gateway": HEADER}), "MNEME_SCHEDULES__SWEEP_SECONDS": "1",
        }  # fmt: skip
        assert POSTGRES in planted["DATABASE_URL"]
        port = free_port()
        flower = celery("flower", f"--port={port}", "--address=127.0.0.1", f"--basic-auth={LOGIN}")
        with (
            process(flower, planted, tmp_path / "flower.log") as flower_process,
            debugged_worker(planted, tmp_path / "worker.log") as worker,
            process(celery("beat", "-l", "debug"), planted, tmp_path / "beat.log") as beat,
        ):
            wait_until(lambda: is_up(port), 30, "Flower")
            for session_id in ("folds", "fails"):
                publish(load_settings(planted), session_id)
            wait_until(lambda: [n.level for n in active(engine, "folds")] == [2], 30)
            wait_until(lambda: any(r.state == "failed" for r in all_runs(engine, "fails")), 30)
            for command in COMMANDS:
                done = run(mneme(*command), planted)
                seen[f"mneme {' '.join(command)}"] = done.stdout + done.stderr
            tasks: dict[str, Any] = json.loads(get(port, "/api/tasks"))
            for path in (
                "/",
                "/tasks",
                "/broker",
                "/metrics",
                "/api/workers?refresh=1",
                *(f"/task/{uuid}" for uuid in tasks),
            ):
                seen[f"Flower {path}"] = get(port, path)
            own.server.send(signal.SIGKILL)  # what is said of a broker that is gone
            wait_until(lambda: any(told["level"] == "error" for told in log_lines(worker.log)), 30)
            unreachable = {"DATABASE_URL": f"postgresql://u:{POSTGRES}@127.0.0.1:1/d", "REDIS_URL": own.url}
            for command in (["config"], ["status"], ["enqueue", "folds"], ["metrics", "--once"], ["backfill"]):
                done = run(mneme(*command), planted | unreachable)
                seen[f"mneme {' '.join(command)}, all is away"] = done.stdout + done.stderr
            for running in (flower_process, worker, beat):
                seen[f"log of {running.log_path.name}"] = running.log
    assert sum(len(text) for text in seen.values()) > 20_000
    for where, text in seen.items():
        for secret in SECRETS:
            assert secret not in text, where
    (fold,) = active(engine, "folds")
    assert "[secret removed]" in fold.content
    assert IN_SNAPSHOT not in fold.content
    for ended in all_runs(engine, "fails"):
        assert not any(secret in (ended.error or "") for secret in SECRETS)
