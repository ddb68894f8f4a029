"""Flower beside a running worker: what somebody on call sees."""

import json
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import redis
from sqlalchemy import Engine

from models import load_settings
from tasks.broker import publish
from tests.support import model_server as says
from tests.support.model_server import ModelServer
from tests.support.processes import celery, celery_worker, process, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import active, all_runs, write

LOGIN = "op:secret"


def get(port: int, path: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    request.add_header("authorization", f"Basic {b64encode(LOGIN.encode()).decode()}")
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(response.read().decode())


def is_up(port: int) -> bool:
    try:
        return get(port, "/healthcheck") == "OK"
    except (urllib.error.URLError, ConnectionError):
        return False


def test_flower_lists_jobs_with_session_and_outcome_and_no_conversation(
    engine: Engine, worker_environ: dict[str, str], server: ModelServer, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "folds", range(5))
    write(engine, "waits", range(4))
    write(engine, "fails", range(5))
    server.answer = lambda call: (
        says.fails(401, "invalid_api_key")(call) if "of fails" in call.user else says.saves("The summary itself.")(call)
    )
    port = free_port()
    environ = worker_environ | {"OPENAI_API_KEY": "sk-very-secret"}
    flower = celery("flower", f"--port={port}", "--address=127.0.0.1", f"--basic-auth={LOGIN}")
    with (
        process(flower, environ, tmp_path / "flower.log"),
        celery_worker(environ, tmp_path / "worker.log") as worker,
    ):
        wait_until(lambda: is_up(port), 30, "Flower")
        wait_until(
            lambda: "w" in json.loads(get(port, "/api/workers?refresh=1")) or "worker@test" in get(port, "/api/workers")
        )
        for session_id in ("folds", "waits", "fails"):
            publish(load_settings(environ), session_id)

        def finished() -> dict[str, Any]:
            tasks = json.loads(get(port, "/api/tasks"))
            return {task["kwargs"]: task for task in tasks.values() if task["state"] in ("SUCCESS", "FAILURE")}

        wait_until(lambda: len(finished()) == 3, 30, "three finished tasks in Flower")
        found = finished()
        pages = [
            get(port, path) for path in ("/", "/tasks", "/broker", "/api/tasks", "/api/workers?refresh=1", "/metrics")
        ]
        pages += [get(port, f"/task/{task['uuid']}") for task in found.values()]
        worker_page = get(port, "/worker/worker@test")
        assert "worker@test" in worker.log or worker_page

    assert len(active(engine, "folds")) == 1
    folds, waits, fails = (found[str({"session_id": s})] for s in ("folds", "waits", "fails"))
    assert all(task["name"] == "mneme.job" for task in found.values())
    (node,) = active(engine, "folds")
    assert "'outcome': 'folded'" in folds["result"]
    assert str(node.id) in folds["result"]
    assert "'outcome': 'below_threshold'" in waits["result"]
    assert (fails["state"], fails["exception"]) == (
        "FAILURE",
        f"ConfigurationFailure({all_runs(engine, 'fails')[0].error!r})",
    )
    for page in [*pages, worker_page]:
        for forbidden in ("decision1", "Snapshot 1", "The summary itself", "sk-very-secret"):
            assert forbidden not in page
