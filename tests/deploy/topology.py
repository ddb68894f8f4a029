"""What deploy/compose/compose.yaml describes, run without a container engine: each service a process of the image, with its
environment, its user, its own network namespace and a read-only root."""

import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.hosts import hosts
from tests.support.image import Image, built, missing
from tests.support.processes import ROOT, Process, process, run, wait_until
from worker.embedded.programs import find_postgres

NEEDS_TOPOLOGY = [
    pytest.mark.xdist_group("topology"),
    pytest.mark.skipif(missing() is not None, reason=f"a container of our own needs {missing()}"),
    pytest.mark.skipif(not shutil.which("redis-server"), reason="the compose file's command is redis-server"),
]

COMPOSE = ROOT / "deploy" / "compose"
BUILDER = "10001:10001"
NOBODY = 65534
ROLES = ("worker", "beat", "flower", "metrics")
OTHERS = ("systemd",)
"""Hosts beside those of the compose file, in its network."""


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a value of the compose file with ``${NAME}``, ``${NAME:-default}`` and ``${NAME:?complaint}`` filled in."""

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name, kind, rest = match[1], match[2], match[3]
        found = variables.get(name, "")
        assert found or kind != ":?", f"{name} {rest}"
        return found or (rest or "")

    if isinstance(value, dict):
        return {key: interpolated(part, variables) for key, part in value.items()}
    if isinstance(value, list):
        return [interpolated(part, variables) for part in value]
    return re.sub(r"\$\$|\$\{(\w+)(?:(:[-?])([^}]*))?\}", fill, value) if isinstance(value, str) else value


@dataclass
class Topology:
    image: Image
    services: dict[str, Any]
    addresses: dict[str, tuple[str, str]]
    secrets: dict[str, str]
    directory: Path
    running: dict[str, Process]

    @contextmanager
    def service(
        self,
        name: str,
        command: list[str] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        to: str | None = None,
    ) -> Iterator[Process]:
        """Start a service, with another command if one is given, and have it known by the name ``to``."""
        described = self.services[name]
        log = self.directory / f"{to or name}.log"
        with self.image.start(
            command or described["command"],
            {**described.get("environment", {}), **(environ or {})},
            log,
            network=self.addresses[name][0],
            mounts=[self._mount(line) for line in described.get("tmpfs", ["/data"])] + self._files(),
        ) as running:
            self.running[to or name] = running
            try:
                yield running
            finally:
                del self.running[to or name]

    def ask(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a service that runs, as ``docker compose exec`` does."""
        environ = self.services[name].get("environment", {})
        return run(self.image.inside(self.running[name], command, environ), {})

    def superuser_url(self, database: str) -> str:
        """Return the URL of Postgres' superuser, as a person on the host would use it."""
        return f"postgresql://postgres:{self.secrets['POSTGRES_PASSWORD']}@{self.addresses['postgres'][1]}/{database}"

    def is_healthy(self, name: str) -> bool:
        kind, *test = self.services[name]["healthcheck"]["test"]
        command = ["sh", "-c", *test] if kind == "CMD-SHELL" else test
        return self.ask(name, *command).returncode == 0

    def _mount(self, described: str) -> str:
        place, _, options = described.partition(":")
        return f'mount -t tmpfs -o {options or "mode=1777"} tmpfs "$ROOT{place}"'

    def _files(self) -> list[str]:
        config = next(iter(self.services["worker"]["configs"]))
        return [
            f'mount --bind {self.directory}/hosts "$ROOT/etc/hosts"',
            f'mount --bind {ROOT}/config.toml "$ROOT{config["target"]}"',
        ]


@contextmanager
def topology(directory: Path, model: str) -> Iterator[Topology]:
    """Build the image, and start all services of the compose file in the order of what they depend on."""
    shutil.copy(COMPOSE / "make-env.sh", directory)
    assert run([str(directory / "make-env.sh")], {}).returncode == 0
    lines = (directory / ".env").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    secrets = {name: value for name, value in variables.items() if name.endswith("PASSWORD")}
    services = interpolated(
        yaml.safe_load((COMPOSE / "compose.yaml").read_text()), variables | {"MNEME_LLM__MODEL": model}
    )["services"]
    with ExitStack() as stack:
        image = stack.enter_context(built(ROOT / services["migrate"]["build"]["dockerfile"], ROOT, BUILDER))
        image.run(
            ["sh", "-c", "touch /etc/mneme/config.toml; mkdir -p /data; ln -s . /opt/mneme/current"],
            {},
            user="0:0",
            directory="/",
        )
        addresses = stack.enter_context(hosts([*services, *OTHERS]))
        names = [f"{address} {name}" for name, (_, address) in addresses.items()]
        (directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")
        made = Topology(image, services, addresses, secrets, directory, {})
        _start_postgres(stack, made)
        stack.enter_context(made.service("redis"))
        wait_until(lambda: made.is_healthy("redis"), 20, "Redis to be healthy")
        with made.service("migrate") as migration:
            assert migration.popen.wait(60) == 0, migration.log
        for role in ROLES:
            stack.enter_context(made.service(role))
        yield made


def _start_postgres(stack: ExitStack, made: Topology) -> None:
    """Start this machine's Postgres as the official image would: a superuser with a password, then the given SQL."""
    environ = made.services["postgres"]["environment"]
    namespace, address = made.addresses["postgres"]
    programs = Path(find_postgres("auto").postgres).parent
    as_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--pdeathsig=KILL"]
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mneme-test-pg-")))
    data, password = place / "data", place / "password"
    data.mkdir()
    password.write_text(environ["POSTGRES_PASSWORD"])
    for path in (place, data, password):
        shutil.chown(path, NOBODY, NOBODY)
    initdb = [f"{programs}/initdb", "-D", str(data), "-U", "postgres", f"--pwfile={password}"]
    done = run([*as_user, *initdb, *environ["POSTGRES_INITDB_ARGS"].split(), "--auth-local=trust"], {})
    assert done.returncode == 0, done.stdout + done.stderr
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all all samenet scram-sha-256\n")  # as the official image has it, for all addresses
    options = ["-c", f"listen_addresses={address}", "-c", f"unix_socket_directories={data}", "-c", "fsync=off"]
    command = [*as_user, f"{programs}/postgres", "-D", str(data), *options]
    entering = ["nsenter", f"--net=/run/netns/{namespace}"]
    server = stack.enter_context(process([*entering, *command], {}, made.directory / "postgres.log"))
    stack.callback(server.popen.wait, 20)
    stack.callback(server.popen.send_signal, signal.SIGINT)
    psql = ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-h", str(data), "-U", "postgres"]
    wait_until(lambda: run([*psql, "-c", "select 1"], {}).returncode == 0, 20, "Postgres to answer")
    filled = run([*psql, "-f", str(COMPOSE / "database.sql")], environ)
    assert filled.returncode == 0, filled.stderr
