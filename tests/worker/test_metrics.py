"""``mneme metrics``: what a real parser reads from it while the rows change."""

import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from models import load_settings
from models.breaker import note_failure, server_of
from models.engine import transaction
from models.errors import ConfigurationFailure
from models.settings import Settings
from tasks.runner import L2Runner
from tasks.sweep import sweep
from tests.models.test_claims import commit, decline, fail, must_claim
from tests.support.processes import Process, mneme, process, run, wait_until
from tests.support.snapshots import all_runs, content, write
from worker.metrics import Metrics
from worker.metrics_server import text_of

Values = dict[str, float]


def parsed(text: str) -> Values:
    """Return every sample by its name and labels."""
    found: Values = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in found
            found[name] = sample.value
    return found


@pytest.fixture
def settings(environ: dict[str, str]) -> Settings:
    prices = {
        "MNEME_SPEND__PROMPT_PRICE": "2",
        "MNEME_SPEND__COMPLETION_PRICE": "10",
        "MNEME_SPEND__TOKENS_PER_DAY": "9",
    }
    return load_settings(environ | prices | {"MNEME_LLM__MODEL": "m"})


@pytest.fixture
def scrape(engine: Engine, settings: Settings) -> Callable[[], Values]:
    metrics = Metrics(settings, engine, lag_seconds=0)
    return lambda: parsed(text_of(metrics))


def test_what_stands_now(
    scrape: Callable[[], Values], engine: Engine, settings: Settings, scalar: Callable[..., Any], broker: redis.Redis
) -> None:
    idle = scrape()
    assert idle["mneme_database_up"] == idle["mneme_broker_up"] == 1
    assert {name for name, value in idle.items() if value} == {
        "mneme_database_up", "mneme_broker_up", "mneme_cap_tokens{window=day}",
    }  # fmt: skip
    assert "mneme_swept_seconds" not in idle  # none ever did, and nought would say that one just has

    for session_id in ("due", "failed", "paused"):
        write(engine, session_id, range(5))
    scalar("update mneme.summary_nodes set created_at = created_at - interval '1 h' where session_id = 'due'")
    scalar("update mneme.sessions set paused_at = now() where id = 'paused'")
    fail(engine, must_claim(engine, "failed"), "transient")
    scalar("update mneme.compaction_runs set retry_at = now() + interval '9 min' where state = 'failed'")
    (loose,) = write(engine, "loose", [1])
    scalar(
        "update mneme.summary_nodes set dismissed_at = now(), dismissed_reason = 'content' where id = :i", i=loose.id
    )
    scalar("update mneme.service_state set swept_at = now() - interval '90 s', rescued = 4")
    scalar("update mneme.service_state set examined_at = now(), violations = 3, broken_rules = '{x}'")
    scalar("insert into mneme.workers values ('a', '1', 8), ('b', '1', 4)")
    scalar("insert into mneme.workers values ('c', '1', 8, now(), now() - interval '1 h')")
    broker.rpush("mneme", "{}")
    with transaction(engine) as connection:
        run_id = all_runs(engine, "failed")[0].id
        note_failure(connection, server_of(settings), ConfigurationFailure("x"), "failed", run_id, settings.llm)
    now = scrape()
    assert now["mneme_waiting_sessions{hold=paused}"] == 1
    assert now["mneme_waiting_nodes{hold=paused}"] == 5
    assert now["mneme_waiting_sessions{hold=held}"] == now["mneme_waiting_sessions{hold=backing_off}"] == 1
    assert 3590 < now["mneme_oldest_uncovered_seconds"] < 3700
    assert now["mneme_backing_off_runs{kind=transient}"] == 1
    assert now["mneme_dismissed_nodes{reason=content}"] == 1
    assert now["mneme_breaker_open{model=m,server=https://api.openai.com/v1}"] == 1
    assert now["mneme_paused_sessions"] == 1
    assert now["mneme_doctor_violations"] == 3
    assert 85 < now["mneme_swept_seconds"] < 120
    assert (now["mneme_workers"], now["mneme_worker_slots"], now["mneme_queue_messages"]) == (2, 12, 1)


def test_counters_grow_by_what_ended_and_by_nothing_twice(
    scrape: Callable[[], Values], engine: Engine, environ: dict[str, str], scalar: Callable[..., Any]
) -> None:
    write(engine, "before", range(5))
    commit(engine, must_claim(engine, "before"))
    before = scrape()
    assert before["mneme_runs_total{kind=,state=succeeded,work=fold}"] == 0  # what was there before is not counted
    write(engine, "s", range(5))
    claimed = must_claim(engine, "s")
    scalar("update mneme.compaction_runs set started_at = started_at - interval '7 s' where state = 'running'")
    commit(engine, claimed)
    scalar(
        "update mneme.compaction_runs set llm_calls = 2, prompt_tokens = 1000, completion_tokens = 100 where session_id = 's'"
    )
    write(engine, "declined", range(5))
    decline(engine, must_claim(engine, "declined"))
    write(engine, "failed", range(5))
    fail(engine, must_claim(engine, "failed"), "content")
    for _ in range(2):
        now = scrape()
        assert now["mneme_runs_total{kind=,state=succeeded,work=fold}"] == 1
        assert now["mneme_runs_total{kind=,state=declined,work=fold}"] == 1
        assert now["mneme_runs_total{kind=content,state=failed,work=fold}"] == 1
        assert now["mneme_runs_total{kind=transient,state=failed,work=fold}"] == 0
        assert now["mneme_llm_calls_total"] >= 2
        assert now["mneme_tokens_total{kind=prompt}"] >= 1000
        assert now["mneme_fold_seconds_count"] == 1
        assert (now["mneme_fold_seconds_bucket{le=5.0}"], now["mneme_fold_seconds_bucket{le=10.0}"]) == (0, 1)
        cost = now["mneme_tokens_total{kind=prompt}"] * 2 + now["mneme_tokens_total{kind=completion}"] * 10
        assert now["mneme_cost_total"] == pytest.approx(cost / 1e6)
    write(engine, "t", range(5))
    L2Runner("t", settings=load_settings(environ), engine=engine).run()
    assert scrape()["mneme_runs_total{kind=,state=succeeded,work=fold}"] == 2


def test_a_sweep_that_finds_what_no_message_told_of_is_seen(
    scrape: Callable[[], Values],
    engine: Engine,
    environ: dict[str, str],
    broker: redis.Redis,
    scalar: Callable[..., Any],
) -> None:
    settings = load_settings(environ | {"MNEME_SCHEDULES__GRACE_SECONDS": "0"})
    scrape()
    write(engine, "lost", range(5))
    write(engine, "failed", range(5))
    fail(engine, must_claim(engine, "failed"), "transient")
    scalar("update mneme.compaction_runs set retry_at = now()")
    scalar("update mneme.summary_nodes set swept_at = now() where session_id = 'failed'")
    assert sweep(settings, engine).enqueued == 2
    assert scrape()["mneme_sweep_rescued_total"] == 1  # a run that was to be tried again is no lost message


def test_a_database_that_is_away_is_a_metric(settings: Settings, environ: dict[str, str]) -> None:
    from models.engine import make_engine

    gone = make_engine("postgresql+psycopg://u@127.0.0.1:1/d", pooled=False)
    assert parsed(text_of(Metrics(settings, gone))) == {"mneme_database_up": 0}


def test_a_broker_that_is_away_is_a_metric(engine: Engine, environ: dict[str, str]) -> None:
    settings = load_settings(environ | {"REDIS_URL": "redis://127.0.0.1:1/0"})
    told = parsed(text_of(Metrics(settings, engine)))
    assert (told["mneme_broker_up"], told["mneme_database_up"]) == (0, 1)
    assert "mneme_queue_messages" not in told


@pytest.fixture
def served(environ: dict[str, str], tmp_path: Path) -> Iterator[tuple[Process, str]]:
    with process(mneme("metrics", "--port", "0"), environ, tmp_path / "metrics.log") as running:
        running.wait_for_log("metrics at")
        found = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", running.log)
        assert found
        yield running, found[1]


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_served_over_http_and_ended_by_sigterm(
    served: tuple[Process, str], engine: Engine, broker: redis.Redis
) -> None:
    running, url = served
    assert get(f"{url}/healthz") == (200, "ok\n")
    assert get(f"{url}/")[0] == 404
    status, text = get(f"{url}/metrics")
    assert (status, parsed(text)["mneme_waiting_sessions{hold=due}"]) == (200, 0)
    write(engine, "chat-42", range(5))
    text = get(f"{url}/metrics")[1]
    assert parsed(text)["mneme_waiting_sessions{hold=due}"] == 1
    assert "chat-42" not in text
    assert content("chat-42", 1)[:20] not in text
    taken = run(mneme("metrics", "--port", url.rpartition(":")[2]), _environ(engine))
    assert (taken.returncode, taken.stdout) == (1, "")  # it may be free when it is started anew
    assert "cannot be listened on" in taken.stderr.splitlines()[-1]
    running.popen.send_signal(signal.SIGTERM)
    wait_until(lambda: running.popen.poll() is not None)
    assert running.popen.returncode == 0
    assert "Traceback" not in running.log


def _environ(engine: Engine) -> dict[str, str]:
    return {"DATABASE_URL": engine.url.render_as_string(hide_password=False).replace("+psycopg", "")}


def test_printed_once(environ: dict[str, str], broker: redis.Redis) -> None:
    done = run(mneme("metrics", "--once"), environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert parsed(done.stdout)["mneme_database_up"] == 1
    unreachable = run(mneme("metrics", "--once"), environ | {"DATABASE_URL": "postgresql://u@127.0.0.1:1/d"})
    assert unreachable.returncode == 1
    assert run(mneme("metrics", "--once"), {}).returncode == 2


def test_a_server_of_metrics_waits_for_its_database(environ: dict[str, str], tmp_path: Path) -> None:
    away = environ | {"DATABASE_URL": "postgresql://u:planted@127.0.0.1:1/d"}
    with process(mneme("metrics", "--port", "0"), away, tmp_path / "metrics.log") as running:
        running.wait_for_log("metrics at")
        url = re.findall(r"metrics at (\S+)", running.log)[0]
        assert parsed(get(url)[1]) == {"mneme_database_up": 0}
        assert "planted" not in running.log
        running.popen.send_signal(signal.SIGINT)
        wait_until(lambda: running.popen.poll() is not None)
        assert running.popen.returncode == 130
