"""An answer that cannot be written now: how long it is kept."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import Engine

from models import StorageError, load_settings
from tasks import L2Runner, patience
from tasks.patience import Patience
from tests.models.test_claims import must_claim
from tests.support import model_server as says
from tests.support.model_server import Call, model_server
from tests.support.servers import BEHIND_PGBOUNCER, Postgres
from tests.support.snapshots import all_runs, write

pytestmark = pytest.mark.skipif(BEHIND_PGBOUNCER, reason="a pooler keeps its connections, and its own account of them")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(patience, "LONGEST_PAUSE_SECONDS", 0.1)


@contextmanager
def away_from_the_answer_on(postgres: Postgres, engine: Engine, seconds: float) -> Iterator[dict[str, str]]:
    """A model whose answer comes when nobody reaches the database, and for so long afterwards."""
    database = engine.url.database

    def come_back() -> None:
        postgres.execute(f"alter database {database} with allow_connections true")

    coming = threading.Timer(seconds, come_back)

    def answer(call: Call) -> None:
        postgres.execute(f"alter database {database} with allow_connections false")
        postgres.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'")
        coming.start()
        says.saves("Short.")(call)

    with model_server() as server:
        server.answer = answer
        try:
            yield {"MNEME_LLM__MODEL": "m", "OPENAI_BASE_URL": server.url}
        finally:
            coming.cancel()
            come_back()
        assert len(server.calls) == 1


def test_an_outage_that_outlasts_patience_costs_no_answer_and_few_lines(
    engine: Engine, postgres: Postgres, environ: dict[str, str], broker: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    write(engine, "s", range(5))
    with away_from_the_answer_on(postgres, engine, 1.5) as model, caplog.at_level(logging.WARNING, "mneme.job"):
        assert L2Runner("s", settings=load_settings(environ | model), engine=engine).run().outcome == "folded"
    assert caplog.text.count("could not be ended, trying again") == 1
    assert [run.state for run in all_runs(engine, "s")] == ["succeeded"]


def test_with_the_lease_patience_ends(
    engine: Engine, postgres: Postgres, environ: dict[str, str], broker: redis.Redis
) -> None:
    write(engine, "s", range(5))
    with away_from_the_answer_on(postgres, engine, 5) as model:
        short = {"MNEME_MNEME__LEASE_SECONDS": "2", "MNEME_LLM__TIMEOUT_SECONDS": "1"}
        with pytest.raises(StorageError, match="not currently accepting connections"):
            L2Runner("s", settings=load_settings(environ | model | short), engine=engine).run()


def test_rows_that_stay_held_end_it_although_the_lease_goes_on(engine: Engine) -> None:
    write(engine, "s", range(5))
    waiting = Patience(must_claim(engine, "s"), lease_seconds=300)
    for _ in range(4):
        waiting.pause(away=False)
    assert waiting.is_over()
