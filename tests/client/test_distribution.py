"""The client among other people's packages: it imports nothing of mneme's, and nothing that its user does not use."""

import ast
import importlib
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import mneme_client
import pytest
import redis
from mneme_client import errors

from tests.support.broker import enqueued
from tests.support.processes import ROOT, clean_environ, run

CLIENT = ROOT / "client"
SOURCES = sorted((CLIENT / "mneme_client").rglob("*.py"))


def imported_at_import(tree: ast.AST) -> Iterator[str]:
    """Yield what importing a module imports, but for what stands under TYPE_CHECKING or in a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif not isinstance(node, ast.If | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported_at_import(node)


def test_it_imports_no_package_of_mnemes() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"models", "tasks", "worker"}, path


def test_only_its_driver_imports_a_library() -> None:
    for path in SOURCES:
        found = {name.split(".")[0] for name in imported_at_import(ast.parse(path.read_text()))}
        if not path.name.startswith("on_"):
            assert not found & {"sqlalchemy", "psycopg", "django", "asgiref"}, path


def test_importing_it_loads_no_library_that_the_app_does_not_use() -> None:
    # Kombu's JSON imports a corner of Django wherever Django is installed; its settings and its database it leaves alone.
    script = (
        "import sys, mneme_client; print(sorted(set(sys.modules)"
        " & {'sqlalchemy', 'psycopg', 'django.db', 'django.apps', 'asgiref', 'models', 'tasks', 'worker'}))"
    )
    # Where this is set, Celery would look for the main app's settings.
    done = run([sys.executable, "-W", "error", "-c", script], {"DJANGO_SETTINGS_MODULE": "no_such_settings"})
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_public_names_errors_and_lengths() -> None:
    assert mneme_client.__all__ == sorted(mneme_client.__all__)
    for module in (mneme_client, mneme_client.aio):
        assert all(hasattr(module, name) and getattr(module, name).__doc__ for name in module.__all__)
    for name, value in vars(errors).items():
        if isinstance(value, type):
            assert issubclass(value, mneme_client.MnemeClientError)
            assert name in mneme_client.__all__
            assert name in (errors.__doc__ or "")
    assert all(len(path.read_text().splitlines()) < 200 for path in SOURCES)
    assert importlib.import_module("mneme_client.refusals").__doc__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=CLIENT, env=clean_environ({}), check=True, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"mneme_client", "mneme_client-0.1.0.dist-info"}
    assert "mneme_client/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


APP = """
import sys
import mneme_client, models, tasks, worker
assert (models.MINE, tasks.MINE, worker.MINE) == (True, True, True)
assert not any(name in sys.modules for name in ("sqlalchemy", "django", "psycopg"))
import psycopg
with psycopg.connect(sys.argv[1]) as connection:
    node_id = mneme_client.write_snapshot(connection, "clash", 1, 10, "Written beside packages of the same names.")
mneme_client.enqueue("clash")
with psycopg.connect(sys.argv[1]) as connection:
    assert [node.id for node in mneme_client.active(connection, "clash")] == [node_id]
    print(mneme_client.memory(connection, "clash", 1000))

import sqlalchemy.orm
try:
    import greenlet
except ImportError:
    engine = sqlalchemy.create_engine(sys.argv[1])
    with sqlalchemy.orm.Session(engine) as session, session.begin():
        mneme_client.write_snapshot(session, "clash", 11, 20, "Written without greenlet.")
    with engine.connect() as connection:
        print(mneme_client.memory(connection, "clash", 1000))
    engine.dispose()
"""


@pytest.mark.wheel
def test_the_wheel_beside_packages_called_models_tasks_and_worker(
    wheel: Path, database_url: str, redis_url: str, broker: redis.Redis, tmp_path: Path
) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    install = [
        *(home / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel),
        *("psycopg[binary]", "sqlalchemy"),  # the app's own; without asyncio and so without greenlet, and no Django
    ]
    kept = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "REQUESTS_"))}
    done = subprocess.run(install, env=clean_environ(kept), cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    app = tmp_path / "app"
    for name in ("models", "tasks", "worker"):
        (app / name).mkdir(parents=True)
        (app / name / "__init__.py").write_text("MINE = True\n")
    (app / "main.py").write_text(APP)
    ran = run([str(home / "bin" / "python"), "-W", "error", "main.py", database_url], {"REDIS_URL": redis_url}, cwd=app)
    assert ran.returncode == 0, ran.stderr
    assert "Written beside packages of the same names." in ran.stdout
    assert "Written without greenlet." in ran.stdout
    assert enqueued(broker, 2) == ["clash", "clash"]
