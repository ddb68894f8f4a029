"""Rules of the project that a machine can check."""

import ast
import importlib
import json
import sys
import tomllib
from pathlib import Path

import pytest

from models import errors
from tests.support.processes import ROOT, celery, mneme, run
from worker.cli import main

PACKAGES = ["models", "tasks", "worker"]


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize(
    ("package", "forbidden"), [("models", {"tasks", "worker", "celery", "kombu", "openai"}), ("tasks", {"worker"})]
)
def test_imports_point_one_way(package: str, forbidden: set[str]) -> None:
    for path in (ROOT / package).rglob("*.py"):
        assert not imports(path) & forbidden, path


@pytest.mark.parametrize("package", ["models", "tasks"])
def test_every_public_name_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name)


def test_every_error_is_public_and_in_the_tree_at_the_top_of_its_module() -> None:
    models = importlib.import_module("models")
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert name in models.__all__
            assert name in (errors.__doc__ or "")
            assert str(value("one string")) == "one string"


def test_every_dependency_is_used_and_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    used = set().union(*(imports(path) for package in PACKAGES for path in (ROOT / package).rglob("*.py")))
    pins = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for requirement in project["dependencies"]:
        name = requirement.split("[")[0].split(">")[0].split("<")[0].split("=")[0]
        # SQLAlchemy and Kombu import these two by the scheme of a URL.
        assert name.replace("-", "_") in used | {"psycopg", "redis"}
        assert name.lower().replace("-", "_") in {pin.replace("-", "_") for pin in pins}


COMMANDS = sorted(main.commands)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([command, "--help"] for command in COMMANDS)])
def test_the_command_explains_itself(arguments: list[str]) -> None:
    done = run(mneme(*arguments), {})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b[" not in done.stdout
    if arguments[0] in COMMANDS:
        assert "\n  Examples:\n\n    " in done.stdout
    if arguments == ["--help"]:
        assert "...\n" not in done.stdout.split("Commands:")[1]  # nothing that it says of a command is cut


def test_the_command_starts_without_what_only_its_actions_need() -> None:
    """What makes ``mneme --help`` slow is loaded by the action that uses it."""
    script = "import sys, worker.cli; print(sorted({'sqlalchemy', 'celery', 'pydantic', 'psycopg', 'openai'} & set(sys.modules)))"
    assert run([sys.executable, "-c", script], {}).stdout == "[]\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["grant"], ["migrate", "--nonsense"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    done = run(mneme(*arguments), {})
    assert (done.returncode, done.stdout) == (2, "")


def test_celery_knows_the_tasks_by_their_public_names() -> None:
    done = run(celery("report"), {"REDIS_URL": "redis://:secret@h/0"})
    assert done.returncode == 0
    assert "secret" not in done.stdout + done.stderr
    script = (
        "import json; from worker.celery import app; app.loader.import_default_modules();"
        "print(json.dumps([sorted(app.tasks), app.conf.accept_content, app.conf.result_backend, app.conf.task_default_queue]))"
    )
    tasks, accepted, backend, queue = json.loads(
        run([sys.executable, "-c", script], {"REDIS_URL": "redis://h/0"}).stdout
    )
    assert [name for name in tasks if not name.startswith("celery.")] == [
        "mneme.doctor",
        "mneme.job",
        "mneme.repair",
        "mneme.retention",
        "mneme.sweep",
    ]
    assert (accepted, backend, queue) == (["json"], None, "mneme")
