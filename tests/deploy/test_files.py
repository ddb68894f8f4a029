"""Every file of deploy/ by the checker of its kind: a file that none knows is a failure."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from models import load_settings
from tests.deploy.units import PROGRAMS, UNITS, exec_start
from tests.support.processes import ROOT, run

DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
MOST_EXPOSURE = 2.0  # of 10, by systemd's own reckoning

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze on this machine")
needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl on this machine")


def tool(name: str, *arguments: object) -> str:
    """Run a checker of the environment, or of the machine, and return what it says; it must be content."""
    own = Path(sys.executable).parent / name
    done = run([str(own if own.exists() else name), *map(str, arguments)], {})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def test_every_file_is_of_a_kind_that_a_test_checks() -> None:
    checked = (
        r".*/README\.md",  # tests/test_docs.py
        r"docker/Dockerfile(\.dockerignore)?",
        r"compose/(compose\.yaml|make-env\.sh|database\.sql)",
        r"systemd/(mneme-[\w@]+\.service|mneme-\.service\.d/hardening\.conf|\w+\.env\.example|mneme)",
        r"kubernetes/(migrate/)?[\w-]+\.yaml",
        r"monitoring/(alerts|alerts_test)\.yml",  # tests/worker/test_monitoring.py
        r"monitoring/dashboard\.json",
        r"README\.md",
    )
    names = [str(path.relative_to(DEPLOY)) for path in FILES if not path.name.startswith(".")]
    assert [name for name in names if not any(re.fullmatch(kind, name) for kind in checked)] == []


def test_the_dockerfile() -> None:
    tool("hadolint", DEPLOY / "docker" / "Dockerfile")


def test_the_image_is_made_from_what_belongs_to_it_and_nothing_else() -> None:
    """Everything is ignored but what the Dockerfile copies: no .env, no history."""
    ignore = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line[1:].removesuffix("/**") for line in ignore if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert "*" in ignore
    assert kept == {name for names in copied for name in names.split()}


def test_the_shell_scripts() -> None:
    scripts = [path for path in FILES if path.suffix == ".sh"]
    assert scripts
    tool("shellcheck", *scripts, UNITS / "mneme", ROOT / ".ci" / "run")


def test_the_compose_file() -> None:
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    lease_seconds = load_settings({}).mneme.lease_seconds
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) > lease_seconds
    for name, service in services.items():
        assert "no-new-privileges:true" in service["security_opt"], name
        assert name == "migrate" or "healthcheck" in service, name
        assert service["cap_drop"] == ["ALL"], name
        assert name == "postgres" or service["read_only"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert {"mem_limit", "pids_limit"} <= service.keys(), name
        assert all("size=" in mounted for mounted in service.get("tmpfs", ())), name
    environ = {name: service["environment"] for name, service in services.items()}
    # Else its status would look at another breaker than the workers obey.
    asked = ("MNEME_LLM__MODEL", "OPENAI_BASE_URL")
    assert [environ["metrics"][name] for name in asked] == [environ["worker"][name] for name in asked]
    assert "OPENAI_API_KEY" in environ["worker"]
    assert not any("OPENAI_API_KEY" in environ[name] for name in services if name != "worker")
    assert [name for name in services if "POSTGRES_PASSWORD" in str(environ[name])] == ["postgres"]


def test_no_password_has_a_default() -> None:
    passwords = re.findall(r"\$\{(\w*PASSWORD\w*)([^}]*)\}", COMPOSE.read_text())
    assert passwords
    assert {rest for _, rest in passwords} == {":?is missing, run make-env.sh"}
    for path in UNITS.glob("*.example"):
        assert not re.search(
            r"^(DATABASE_URL|REDIS_URL|OPENAI_API_KEY|FLOWER_BASIC_AUTH)=.", path.read_text(), re.MULTILINE
        )


def test_files_with_secrets_are_not_taken_into_the_history() -> None:
    made = ["deploy/compose/.env", "deploy/compose/.env.new", "deploy/compose/config.toml", "mneme.env", "flower.env"]
    made += [f"deploy/compose/{name}" for name in ("compose.override.yaml", "mneme.dump", "memory.html")]
    ignored = run(["git", "check-ignore", *made], {}, cwd=ROOT)
    assert ignored.stdout.split() == made
    assert run(["git", "check-ignore", "deploy/systemd/mneme.env.example"], {}, cwd=ROOT).returncode == 1


def test_the_passwords_are_made_once(tmp_path: Path) -> None:
    script = Path(shutil.copy(DEPLOY / "compose" / "make-env.sh", tmp_path))
    assert run([str(script)], {}).returncode == 0
    made = tmp_path / ".env"
    values = dict(line.split("=", 1) for line in made.read_text().splitlines() if "=" in line and line[0] != "#")
    passwords = [value for name, value in values.items() if "PASSWORD" in name]
    assert made.stat().st_mode & 0o777 == 0o600
    assert len(set(passwords)) == 4
    assert all(re.fullmatch(r"[0-9a-f]{48}", password) for password in passwords)
    before = made.read_bytes()
    again = run([str(script)], {})
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert made.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".env", "make-env.sh"]


@needs_kubectl
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_the_manifests(tmp_path: Path, version: str) -> None:
    for directory in (KUBERNETES, KUBERNETES / "migrate"):
        manifests = tmp_path / f"{directory.name}.yaml"
        manifests.write_text(tool("kubectl", "kustomize", directory))
        tool("kubernetes-validate", "--kubernetes-version", version, "--strict", manifests)


@needs_kubectl
def test_the_pods() -> None:
    """What a schema does not tell: privileges, limits, probes, and that what refers to something refers to what is there."""
    found = documents(
        tool("kubectl", "kustomize", KUBERNETES) + "---\n" + tool("kubectl", "kustomize", KUBERNETES / "migrate")
    )
    config_maps = {document["metadata"]["name"] for document in found if document["kind"] == "ConfigMap"}
    workloads = {d["metadata"]["name"]: d["spec"] for d in found if d["kind"] in ("Deployment", "Job")}
    assert set(workloads) == {f"mneme-{role}" for role in ("worker", "beat", "metrics", "flower", "migrate")}
    for name, workload in workloads.items():
        pod = workload["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["enableServiceLinks"] is False, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert set(container["resources"]) == {"requests", "limits"}, name
        assert name == "mneme-migrate" or "livenessProbe" in container, name
        for source in container.get("envFrom", ()):
            assert "secretRef" in source or source["configMapRef"]["name"] in config_maps, name
    assert workloads["mneme-beat"]["strategy"] == {"type": "Recreate"}
    grace = workloads["mneme-worker"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > load_settings({}).mneme.lease_seconds


@needs_systemd
def test_the_units(tmp_path: Path) -> None:
    # The programs need not be installed for this, but must be there.
    programs = tmp_path / "opt"
    programs.mkdir()
    for name in ("celery", "mneme"):
        (programs / name).touch(mode=0o755)
    shutil.copytree(UNITS, tmp_path / "units")
    for path in (tmp_path / "units").glob("*.service"):
        text = path.read_text()
        assert PROGRAMS in exec_start(path)
        path.write_text(text.replace(PROGRAMS, f"{programs}/"))
    names = [path.name.replace("@.", "@1.") for path in (tmp_path / "units").glob("*.service")]
    environ = {"SYSTEMD_UNIT_PATH": f"{tmp_path}/units:"}
    verified = run(["systemd-analyze", "verify", "--man=no", *names], environ)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    for name in names:
        judged = run(["systemd-analyze", "security", "--offline=true", "--no-pager", name], environ).stdout
        exposure = re.search(r"exposure level for \S+: ([\d.]+)", judged)
        assert exposure is not None, judged
        assert float(exposure[1]) <= MOST_EXPOSURE, judged


@pytest.mark.parametrize(
    ("auth", "starts"),
    [("user:p&$;password", True), (None, False), ("", False), (":", False), ("user", False), ("u:pa,ss", False), ("u:ü", False)],
)  # fmt: skip
def test_flower_starts_with_a_password_that_it_understands(auth: str | None, starts: bool) -> None:
    start = exec_start(UNITS / "mneme-flower.service")
    command = shlex.split(start.replace(PROGRAMS + "celery", "echo"))
    done = run(command, {} if auth is None else {"FLOWER_BASIC_AUTH": auth})
    if starts:
        assert (done.returncode, done.stdout) == (0, "-A worker flower --address=127.0.0.1 --port=5555\n")
    else:
        assert (done.returncode, done.stdout) == (2, "")
        assert "/etc/mneme/flower.env: expected FLOWER_BASIC_AUTH=user:password" in done.stderr


def test_a_unit_lets_a_worker_finish_its_folds() -> None:
    worker = (UNITS / "mneme-worker@.service").read_text()
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", worker, re.MULTILINE)[0]) > load_settings({}).mneme.lease_seconds
    assert "KillMode=mixed" in worker


def test_each_service_of_systemd_gets_no_more_secrets_than_it_needs() -> None:
    every = re.findall(
        r"^EnvironmentFile=(.+)$", (UNITS / "mneme-.service.d" / "hardening.conf").read_text(), re.MULTILINE
    )
    assert every == ["/etc/mneme/mneme.env"]
    own = {
        unit.stem: [Path(name).stem for name in re.findall(r"^EnvironmentFile=(.+)$", unit.read_text(), re.MULTILINE)]
        for unit in UNITS.glob("*.service")
    }
    assert own == {
        "mneme-worker@": ["database", "model"], "mneme-beat": [], "mneme-metrics": ["database"],
        "mneme-migrate": ["database"], "mneme-flower": ["flower"],
    }  # fmt: skip


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """The command of a host, whose settings and programs lie in the test's directory."""
    for release in ("current", "0.2.0"):
        program = tmp_path / "opt" / release / "bin" / "mneme"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\necho {release} "$@"\nenv\n')
        program.chmod(0o755)
    text = (UNITS / "mneme").read_text()
    assert text.count("/etc/mneme") > 1
    (tmp_path / "mneme").write_text(text.replace("/etc/mneme", str(tmp_path)).replace("/opt/mneme", f"{tmp_path}/opt"))
    for name in ("mneme", "database", "model"):
        shutil.copy(UNITS / f"{name}.env.example", tmp_path / f"{name}.env")
    return tmp_path / "mneme"


def test_the_command_of_a_host_reads_its_settings_and_executes_none(command: Path) -> None:
    hostile = "p&$(touch owned)`id`;x#y'z"
    lines = [
        "# DATABASE_URL=no",
        "; REDIS_URL=no",
        "",
        f"DATABASE_URL={hostile}",
        "A=\"b 'c' $d\"",
        "B='e \"f\" g\\h'",
        "C=",
    ]
    command.with_name("database.env").write_text("\n".join([*lines, "LAST=no line end"]))
    done = run(["sh", str(command), "show", "a b"], {"DATABASE_URL": "of the shell", "HOME": "/"}, cwd=command.parent)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[0] == "current show a b"
    assert {f"DATABASE_URL={hostile}", "A=b 'c' $d", r'B=e "f" g\h', "C=", "LAST=no line end"} <= set(told)
    assert f"MNEME_CONFIG={command.parent}/config.toml" in told
    assert not command.with_name("owned").exists()
    command.with_name("mneme.env").write_text("   \nDATABASE_URL=last\nhttps_proxy=http://h\n")
    told = run(["sh", str(command), "show"], {}).stdout.splitlines()
    assert {"DATABASE_URL=last", "https_proxy=http://h"} <= set(told)
    other = run(["sh", str(command), "migrate"], {"MNEME_RELEASE": "0.2.0"})
    assert other.stdout.startswith("0.2.0 migrate\n")
    none = run(["sh", str(command), "migrate"], {"MNEME_RELEASE": "0.9.9"})
    assert none.returncode == 2
    assert none.stderr.endswith("opt/0.9.9/bin/mneme: there is no such release\n")


@pytest.mark.parametrize(
    "line",
    [
        r"X=a\b", r'X="a\\b"', r'X="a\"b"', "X=a ", "X= a", "X=a\t", "X=a\r", 'X="a" ', "X='a' #", "X='a'b'", "X='", 'X="a',
        " X=a", "export X=a", "X =a", "X-Y=a", "1X=a", "=a", "X", "# a\\", "# a\rX=b", "X=a\rY=b", "X=ü",
        "MNEME_CONFIG=/x", "MNEME_RELEASE=/x", "path=/x", "number=7x", "OPTIND=a",
    ],
)  # fmt: skip
def test_what_systemd_would_read_otherwise_is_refused(command: Path, line: str) -> None:
    command.with_name("model.env").write_text(f"# first\n{line}\nY=b\n")
    done = run(["sh", str(command), "status"], {})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"mneme: {command.parent}/model.env, line 2: ")
    assert done.stderr.count("\n") == 1


def test_the_command_of_a_host_says_whom_it_is_for(command: Path) -> None:
    command.with_name("model.env").unlink()
    done = run(["sh", str(command), "status"], {})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"mneme: {command.parent}/model.env: there is no such file\n"
    if os.geteuid() == 0:
        command.with_name("model.env").touch(mode=0o600)
        os.chown(command.with_name("model.env"), 65534, 65534)
        done = run(["setpriv", "--bounding-set=-all", "sh", str(command), "status"], {})
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"mneme: {command.parent}/model.env: it cannot be read: are you root?\n"
