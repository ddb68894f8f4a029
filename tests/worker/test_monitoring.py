"""The alert rules and the dashboard, by Prometheus' own tools, and against what is really served."""

import json
import re
import shutil
import time
import urllib.request
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from tests.support.processes import ROOT, mneme, process, run, wait_until
from tests.support.servers import free_port
from tests.support.snapshots import write

MONITORING = ROOT / "deploy" / "monitoring"
with_prometheus = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("prometheus")),
    reason="Prometheus and its promtool are not on this machine",
)


def names_used(text: str) -> set[str]:
    """Return the metrics that an expression asks, as they are served."""
    return {re.sub(r"_bucket$", "_count", name) for name in re.findall(r"\bmneme_\w+", text)}


def expressions() -> set[str]:
    rules = (MONITORING / "alerts.yml").read_text()
    board = json.loads((MONITORING / "dashboard.json").read_text())
    alerts = re.sub(r"`[^`]*`|\b(summary|description):.*", "", rules)
    return names_used(alerts).union(*(names_used(t["expr"]) for panel in board["panels"] for t in panel["targets"]))


def test_nothing_is_asked_for_that_is_not_served(environ: dict[str, str], engine: Engine, broker: redis.Redis) -> None:
    import worker.metrics

    source = Path(worker.metrics.__file__).read_text()
    served = set(re.findall(r'"(mneme_\w+)"', source))
    served |= {f"{name}_total" for name in served} | {f"{name}_count" for name in served}
    assert expressions() <= served
    printed = run(mneme("metrics", "--once"), environ).stdout
    # What has no value on an idle system has no series on it.
    unseen = {name for name in expressions() if not re.search(rf"^{name}[ {{]", printed, re.MULTILINE)}
    assert unseen == {"mneme_breaker_open", "mneme_backing_off_runs", "mneme_swept_seconds", "mneme_doctor_violations"}


def test_the_panels_do_not_overlap() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= own


@with_prometheus
def test_the_rules_pass_their_tests() -> None:
    checked = run(["promtool", "check", "rules", "alerts.yml"], {}, cwd=MONITORING)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = run(["promtool", "test", "rules", "alerts_test.yml"], {}, cwd=MONITORING)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    # Each rule is seen firing in them, not silent alone.
    rules, tests = ((MONITORING / name).read_text() for name in ("alerts.yml", "alerts_test.yml"))
    firing = tests.partition("name: nobody serves")[2]
    for name in re.findall(r"alert: (\w+)", rules):
        assert re.search(rf"\b{name}\b", firing), name


@with_prometheus
def test_prometheus_reads_what_is_served(
    environ: dict[str, str], engine: Engine, broker: redis.Redis, tmp_path: Path
) -> None:
    write(engine, "s", range(5))
    port, own = free_port(), free_port()
    (tmp_path / "prometheus.yml").write_text(
        f"""
        global: {{scrape_interval: 1s, evaluation_interval: 1s}}
        rule_files: [{MONITORING / "alerts.yml"}]
        scrape_configs: [{{job_name: mneme, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
        """
    )
    prometheus = [
        "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{own}",
    ]  # fmt: skip

    def ask(query: str) -> list[dict[str, object]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/query?query={query}", timeout=5) as answer:
                return list(json.load(answer)["data"]["result"])
        except OSError:
            time.sleep(0.2)
            return []

    with (
        process(mneme("metrics", "--port", str(port)), environ, tmp_path / "metrics.log"),
        process(prometheus, {}, tmp_path / "prometheus.log"),
    ):
        wait_until(lambda: ask("up{job='mneme'}==1".replace("'", "%22").replace("==", "%3D%3D")), 60, "a scrape")
        (due,) = ask("mneme_waiting_sessions{hold=%22due%22}")
        assert due["value"][1] == "1"  # type: ignore[index]
        wait_until(lambda: ask("ALERTS{alertname=%22MnemeNoWorkers%22}"), 30, "the first evaluation")
