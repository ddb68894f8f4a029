"""The image's build and every service of the compose file, run for real; the commands of the other ways are the same ones."""

import json
import re
import shlex
import signal
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

import psycopg
import pytest
import yaml

from tests.deploy.topology import NEEDS_TOPOLOGY, ROLES, Topology
from tests.deploy.units import UNITS, exec_start
from tests.support.processes import ROOT, wait_until

pytestmark = NEEDS_TOPOLOGY

SAID = {
    "worker": " ready.",
    "beat": "beat: Starting",
    "flower": "Connected to redis",
    "metrics": "metrics at http://127.0.0.1:9465",
}


def get(url: str, password: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url)
    if password is not None:
        request.add_header("Authorization", "Basic " + b64encode(f"mneme:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_snapshots_of_an_app_are_folded_and_seen_everywhere(running: Topology) -> None:
    address = running.addresses["postgres"][1]
    with psycopg.connect(running.superuser_url("mneme"), autocommit=True) as superuser:
        superuser.execute("create role app login password 'of-the-app'")
        of_service = "select rolsuper or rolcreaterole or rolcreatedb from pg_roles where rolname = 'mneme_service'"
        assert superuser.execute(of_service).fetchone() == (False,)
    granted = running.ask("metrics", "mneme", "grant", "app")
    assert granted.returncode == 0, granted.stderr
    with psycopg.connect(f"postgresql://app:of-the-app@{address}/mneme", autocommit=True) as app:
        for number in range(5):
            text = f"Ada chose Postgres over MySQL for service {number}, because of its constraints. " * 20
            span = (number * 10, number * 10 + 9)
            app.execute("select mneme.write_l1_snapshot('chat', %s, %s, %s)", (*span, text))
        folded = "select count(*) from mneme.active_summary_nodes where session_id = 'chat' and level = 2"
        sent = running.ask("metrics", "mneme", "enqueue", "chat")
        assert sent.returncode == 0, sent.stderr
        wait_until(lambda: app.execute(folded).fetchone() == (1,), 60, "the fold")

    told = running.ask("metrics", "mneme", "status", "--json")
    assert len(json.loads(told.stdout)["workers"]) == 1, told.stdout
    flower = f"http://{running.addresses['flower'][1]}:5555"
    assert get(flower)[0] == 401
    assert get(flower, "wrong")[0] == 401
    status, page = get(flower, running.secrets["FLOWER_PASSWORD"])
    assert (status, "Flower" in page) == (200, True)
    status, page = get(f"http://{running.addresses['metrics'][1]}:9464/metrics")
    assert (status, "mneme_database_up 1.0" in page) == (200, True)


@pytest.mark.parametrize("role", ROLES)
def test_nothing_but_its_own_two_directories_can_be_written(running: Topology, role: str) -> None:
    identity = running.ask(role, "id", "-u").stdout.strip()
    assert identity == "10001"
    for place in ("/opt/mneme/x", "/etc/mneme/x", "/x", "/var/tmp/x"):
        assert running.ask(role, "touch", place).returncode != 0, place
    for place in ("/tmp/x", "/run/mneme/x"):
        assert running.ask(role, "touch", place).returncode == 0, place
    status = Path(f"/proc/{running.running[role].popen.pid}/status").read_text()
    assert re.search(r"CapBnd:\s+0+\n", status)
    assert re.search(r"NoNewPrivs:\s+1\n", status)


def test_no_password_stands_in_a_list_of_processes(running: Topology) -> None:
    for name, service in running.running.items():
        shown = Path(f"/proc/{service.popen.pid}/cmdline").read_text()
        assert not any(secret in shown for secret in running.secrets.values() if secret), name
        assert not any(secret in service.log for secret in running.secrets.values() if secret), name


def test_a_loop_that_stands_still_is_unhealthy(running: Topology) -> None:
    running.running["beat"].send(signal.SIGSTOP)
    try:
        assert running.ask("beat", "touch", "-d", "3 minutes ago", "/run/mneme/alive").returncode == 0
        assert not running.is_healthy("beat")
    finally:
        running.running["beat"].send(signal.SIGCONT)
    wait_until(lambda: running.is_healthy("beat"), 20, "beat to be healthy again")


def test_a_worker_ends_politely_and_the_next_one_takes_its_place(running: Topology) -> None:
    with running.service("worker", to="second") as second:
        second.wait_for_log(" ready.")
        second.popen.send_signal(signal.SIGTERM)
        assert second.popen.wait(30) == 0, second.log


def test_the_commands_of_systemd_start_what_they_say(running: Topology) -> None:
    """Each ExecStart in the same image, with an environment file as step 2 of its README makes it."""
    for unit in sorted(UNITS.glob("*.service")):
        start = exec_start(unit)
        # The ports are taken by the services that run.
        start = start.replace("%i", "1").replace("%H", "host").replace("5555", "5556").replace("9464", "9465")
        role = re.split(r"[-@.]", unit.name)[1]
        environ = dict(running.services["worker"]["environment"]) | {"FLOWER_BASIC_AUTH": "user:password"}
        with running.service("worker", shlex.split(start), environ, to=unit.name) as service:
            if role == "migrate":
                assert service.popen.wait(60) == 0, service.log
            else:
                service.wait_for_log(SAID[role])
                assert service.popen.poll() is None, service.log


def test_the_commands_of_kubernetes_are_those_of_the_compose_file(running: Topology) -> None:
    for role in (*ROLES, "migrate"):
        directory = ROOT / "deploy" / "kubernetes" / ("migrate" if role == "migrate" else "")
        manifest = next(iter(yaml.safe_load_all((directory / f"{role}.yaml").read_text())))
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        assert container["args"] == running.services[role]["command"]
    assert running.image.command == running.services["worker"]["command"]
