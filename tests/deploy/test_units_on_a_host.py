"""The units of deploy/systemd under a systemd of their own, installed by the very lines of their README."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from tests.deploy.topology import NEEDS_TOPOLOGY, Topology
from tests.support.processes import ROOT, wait_until
from tests.support.systemd_host import Host, missing, systemd_host

pytestmark = [*NEEDS_TOPOLOGY, pytest.mark.skipif(missing() is not None, reason=f"a host of our own needs {missing()}")]

README = (ROOT / "deploy" / "systemd" / "README.md").read_text()
FOLDS = "folds, up to 8 sessions at once"
# One with what means something to a shell, for files that nobody is to execute.
FLOWER_PASSWORD = "user:p&$(id)`;#"
FILL_IN = """sed -i "/^$NAME=/d" "$FILE"; printf "%s='%s'\\n" "$NAME" "$VALUE" >>"$FILE\""""


def step(part: str) -> str:
    """Return the one block of commands of the README that holds this, without the editor."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", README, re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if part in block]
    return re.sub(r"^ *vi .*\n", "", found, flags=re.MULTILINE)


@dataclass
class Installed:
    host: Host
    secrets: dict[str, str]


@pytest.fixture(scope="module")
def installed(running: Topology, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A host on which steps 2 and 3 were taken; the image has what step 1 makes."""
    postgres, redis = (running.addresses[name][1] for name in ("postgres", "redis"))
    with psycopg.connect(running.superuser_url("postgres"), autocommit=True) as connection:
        connection.execute("create database of_systemd owner mneme_service")
    secrets = {
        "REDIS_URL": f"redis://:{running.secrets['REDIS_PASSWORD']}@{redis}:6379/1",
        "DATABASE_URL": f"postgresql://mneme_service:{running.secrets['SERVICE_PASSWORD']}@{postgres}/of_systemd",
        "OPENAI_API_KEY": "sk-of-the-model",
        "FLOWER_BASIC_AUTH": FLOWER_PASSWORD,
    }
    log = tmp_path_factory.mktemp("host") / "console.log"
    with systemd_host(running.image, running.addresses["systemd"][0], ROOT, log) as host:
        host.must(step("install -d"))
        for file, name in zip(("mneme", "database", "model", "flower"), secrets, strict=True):
            host.must(FILL_IN, {"FILE": f"/etc/mneme/{file}.env", "NAME": name, "VALUE": secrets[name]})
        host.must("sed -i s/^MNEME_LLM__MODEL=.*/MNEME_LLM__MODEL=extract/ /etc/mneme/mneme.env")
        host.must(step("systemctl enable --now mneme-worker@1"))
        yield Installed(host, secrets)
        host.must("systemctl stop 'mneme-*'")


UNITS = ["mneme-worker@1", "mneme-worker@2", "mneme-beat", "mneme-metrics", "mneme-flower"]


def test_every_service_runs_and_says_what_it_does(installed: Installed) -> None:
    host = installed.host
    for unit in UNITS:
        assert host.property(unit, "ActiveState") == "active", host.must(f"systemctl status --no-pager {unit}; true")
    wait_until(lambda: host.property("mneme-worker@1", "StatusText") == FOLDS, 30, "the worker's state")
    assert len(json.loads(host.must("mneme status --json"))["workers"]) == 2
    host.must("mneme import worker/demo_session.jsonl")
    wait_until(lambda: '"level": 2' in host.must("mneme tree demo --json"), 60, "the fold")


def test_each_is_confined_and_gets_no_more_secrets_than_it_needs(installed: Installed) -> None:
    host = installed.host
    expected = {
        "mneme-worker@1": {"REDIS_URL", "DATABASE_URL", "OPENAI_API_KEY"},
        "mneme-beat": {"REDIS_URL"},
        "mneme-metrics": {"REDIS_URL", "DATABASE_URL"},
        "mneme-flower": {"REDIS_URL", "FLOWER_BASIC_AUTH"},
    }
    for unit, names in expected.items():
        pid = host.property(unit, "MainPID")
        environ = dict(line.split("=", 1) for line in host.must(f"tr '\\0' '\\n' </proc/{pid}/environ").splitlines())
        assert {name for name in installed.secrets if name in environ} == names, unit
        assert all(environ[name] == installed.secrets[name] for name in names), unit
        assert int(host.must(f"stat --format=%u /proc/{pid}")) > 60_000, unit  # of those that systemd gives for a while
        for place in ("/etc/mneme", "/opt/mneme", "/var/lib", "/home"):
            assert host.run(f"nsenter --target={pid} --mount touch {place}/x").returncode != 0, (unit, place)
    journal = host.must("journalctl --no-pager")
    assert "mneme" in journal
    assert not [name for name, secret in installed.secrets.items() if secret in journal]


def test_a_killed_worker_is_started_again(installed: Installed) -> None:
    host = installed.host
    killed = host.property("mneme-worker@2", "MainPID")
    host.must(f"kill -KILL {killed}")
    wait_until(lambda: host.property("mneme-worker@2", "NRestarts") == "1", 20, "the restart")
    wait_until(lambda: host.property("mneme-worker@2", "ActiveState") == "active", 30, "the worker to be ready")
    assert host.property("mneme-worker@2", "MainPID") != killed


def test_the_restart_of_the_readme_leaves_no_worker_out(installed: Installed) -> None:
    host = installed.host
    host.must("systemctl enable --now mneme-worker@3")
    units = ["mneme-worker@1", "mneme-worker@2", "mneme-worker@3", "mneme-beat"]
    before = [host.property(unit, "MainPID") for unit in units]
    host.must(step("systemctl list-units"))
    after = [host.property(unit, "MainPID") for unit in units]
    assert all(new not in ("0", old) for new, old in zip(after, before, strict=True))
    host.must("systemctl disable --now mneme-worker@3")


def test_wrong_settings_end_a_service_once_and_a_stop_is_polite(installed: Installed) -> None:
    host = installed.host
    host.must("printf '\\nMNEME_WORKER__CONCURRENCY=many\\n' >>/etc/mneme/mneme.env")
    try:
        assert host.run("systemctl restart mneme-worker@2").returncode != 0
        state = [host.property("mneme-worker@2", name) for name in ("ActiveState", "ExecMainStatus", "Result")]
        assert state == ["failed", "2", "exit-code"]
        assert "worker.concurrency" in host.must("journalctl --no-pager --unit=mneme-worker@2 --lines=5")
    finally:
        host.must("sed -i /MNEME_WORKER__CONCURRENCY/d /etc/mneme/mneme.env")
    host.must("systemctl stop mneme-worker@1")
    assert host.property("mneme-worker@1", "Result") == "success"
