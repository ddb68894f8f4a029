"""Four workers obey the caps on spending, and go on by themselves when the window has moved."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from tests.support import model_server as says
from tests.support.model_server import ModelServer, model_server
from tests.support.processes import celery, debugged_worker, mneme, process, run, wait_until
from tests.support.snapshots import active, write

SESSIONS = [f"s{number:02}" for number in range(30)]
CALL_TOKENS = 740
SLOTS = 4 * 2


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        server.answer = says.saves("Short.", after_seconds=0.2)
        yield server


def test_four_workers_at_once(
    engine: Engine, environ: dict[str, str], server: ModelServer, broker: redis.Redis, scalar: Callable[..., Any],
    tmp_path: Path,
) -> None:  # fmt: skip
    quick = {f"MNEME_SCHEDULES__{name}_SECONDS": "1" for name in ("SWEEP", "GRACE", "REQUEUE")}
    asking = environ | quick | {
        "MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url, "MNEME_WORKER__CONCURRENCY": "2",
        "MNEME_SPEND__TOKENS_PER_HOUR": str(3 * CALL_TOKENS), "MNEME_SPEND__PROMPT_PRICE": "2", "MNEME_SPEND__COMPLETION_PRICE": "10",
    }  # fmt: skip
    for session_id in SESSIONS:
        write(engine, session_id, range(5))
    with ExitStack() as stack:
        for number in range(4):
            stack.enter_context(debugged_worker(asking, tmp_path / f"worker{number}.log"))
        stack.enter_context(process(celery("beat"), asking, tmp_path / "beat.log"))
        assert run(mneme("enqueue", *SESSIONS), asking).returncode == 0
        logs = [tmp_path / f"worker{number}.log" for number in range(4)]
        wait_until(
            lambda: broker.llen("mneme") == 0 and any("'held'" in log.read_text() for log in logs), 60, "the cap"
        )
        wait_until(lambda: server.under_way == 0)
        wait_until(lambda: "running     0 folds" in run(mneme("status"), asking).stdout)
        # What was under way when the cap was reached may exceed it, and no more.
        assert 3 <= len(server.calls) <= 3 + SLOTS
        told = run(mneme("status"), asking).stdout
        left = len(SESSIONS) - len(server.calls)
        assert f"held        {left} sessions, {5 * left} nodes, by spend.tokens_per_hour, 2,220" in told
        cost = len(server.calls) * (700 * 2 + 40 * 10) / 1e6
        assert (
            re.search(rf"last hour   {len(server.calls)} folds, .* of 2,220 allowed, cost {cost:.2f}\n", told)
            or cost < 0.005
        )
        for _ in range(20):
            scalar(
                "update mneme.compaction_runs set started_at = started_at - interval '1 h',"
                " finished_at = finished_at - interval '1 h' where finished_at > now() - interval '1 h'"
            )
            wait_until(lambda: _settled(server), 30, "the cap again")
            if all(len(active(engine, session_id)) == 1 for session_id in SESSIONS):
                break
    assert all(len(active(engine, session_id)) == 1 for session_id in SESSIONS)
    assert len(server.calls) == len(SESSIONS)


def _settled(server: ModelServer) -> bool:
    """Say whether for two sweeps nothing has been asked."""
    before = len(server.calls)
    time.sleep(2.5)
    return server.under_way == 0 and len(server.calls) == before
