"""All of LoCoMo, written and folded by a real worker: real text, long sessions, every byte kept."""

from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, sessionmaker

from models import SummaryDAGStore, SummaryNode, load_settings
from tasks import enqueue_on_commit
from tests.support import locomo
from tests.support import model_server as says
from tests.support.model_server import ModelServer
from tests.support.processes import celery, celery_worker, process, wait_until

pytestmark = locomo.needs_locomo


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    return locomo.lines()


@pytest.mark.parametrize("model", ["extract", "scripted"])
def test_every_session_ends_below_the_threshold_and_every_snapshot_is_readable(
    model: str, lines: list[dict[str, Any]], engine: Engine, worker_environ: dict[str, str], server: ModelServer,
    broker: redis.Redis, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    server.answer = lambda call: says.saves(f"Summary {call.number}: what was decided, and why. " * 4)(call)
    environ = worker_environ | {"MNEME_LLM__MODEL": model}
    factory = sessionmaker(engine)
    enqueue_on_commit(factory, settings=load_settings(environ))
    written: dict[Any, str] = {}
    with (
        celery_worker(environ, tmp_path / "worker.log"),
        process(celery("beat"), environ, tmp_path / "beat.log"),
    ):
        for line in lines:
            with factory.begin() as session:
                node = SummaryDAGStore(session).insert_node(
                    SummaryNode(
                        **{key: line[key] for key in ("session_id", "span_start", "span_end", "content")},
                        level=1,
                        started_at=_moment(line["started_at"]),
                        ended_at=_moment(line["ended_at"]),
                    )
                )
                written[node.id] = line["content"]
        wait_until(lambda: max(waiting(engine).values()) < 5, 60, "every session below the threshold")

    rows = table(engine)
    with capsys.disabled():
        print(f"\nLoCoMo with {model}:")
        print(f"{'session':<12}{'snapshots':>10}{'folds':>7}{'tokens before':>15}{'after':>8}{'calls':>7}")
        for row in rows:
            print(f"{row.session_id:<12}{row.snapshots:>10}{row.folds:>7}{row.before:>15}{row.after:>8}{row.calls:>7}")
    assert sum(row.snapshots for row in rows) == len(lines) == 168
    assert all(row.after < row.before for row in rows)
    assert all(row.folds >= row.snapshots // 20 for row in rows)
    assert (
        sum(row.calls for row in rows) == len(server.calls) == (0 if model == "extract" else sum(r.folds for r in rows))
    )
    with Session(engine) as session:
        store = SummaryDAGStore(session)
        for node_id, content in written.items():
            found = store.get_node_by_id(node_id)
            assert found is not None
            assert found.content == content
    with engine.connect() as connection:
        # Exactly once: each covered snapshot stands in the edges of one node, its successor.
        twice = text("select parent_id from mneme.summary_edges group by parent_id having count(*) > 1")
        assert connection.execute(twice).all() == []
        assert (
            connection.execute(text("select count(*) from mneme.compaction_runs where state <> 'succeeded'")).scalar()
            == 0
        )


def _moment(told: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(told)


def waiting(engine: Engine) -> dict[str, int]:
    statement = text(
        "select s.id, count(n.id) from mneme.sessions s left join mneme.summary_nodes n on n.session_id = s.id"
        " and n.level = 1 and n.superseded_by is null and n.dismissed_at is null group by s.id"
    )
    with engine.connect() as connection:
        return dict(connection.execute(statement).all())  # type: ignore[arg-type]


def table(engine: Engine) -> list[Any]:
    statement = text("""
        select n.session_id, count(*) filter (where level = 1) as snapshots, count(*) filter (where level = 2) as folds,
               sum(token_count) filter (where level = 1) as before,
               sum(token_count) filter (where superseded_by is null) as after,
               (select coalesce(sum(llm_calls), 0) from mneme.compaction_runs r where r.session_id = n.session_id) as calls
          from mneme.summary_nodes n group by n.session_id order by n.session_id
    """)
    with engine.connect() as connection:
        return list(connection.execute(statement))
