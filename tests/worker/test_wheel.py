"""A wheel in an empty environment, outside the checkout: migrate, a worker and a fold."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from tests.support.processes import ROOT, clean_environ, process, run, wait_until
from tests.support.servers import Postgres
from tests.support.snapshots import active, write

pytestmark = pytest.mark.xdist_group("wheel")  # one fixture of the module is dear


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, env=clean_environ({}), check=True, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel and what it depends on, and nothing else."""
    home = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(home, with_pip=True)
    install = [home / "bin" / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel]
    kept = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "REQUESTS_"))}
    done = subprocess.run(install, env=clean_environ(kept), cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return home / "bin"


def test_the_wheel_holds_what_it_needs_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "models/config.toml", "models/py.typed", "tasks/py.typed", "worker/py.typed",
        "models/migrations/env.py", "models/migrations/versions/0001_schema.py", "models/migrations/versions/0001_schema.sql",
        "worker/picture/page/page.html", "worker/picture/page/page.css", "worker/picture/page/start.js",
    ):  # fmt: skip
        assert needed in names
    assert {name.split("/")[0] for name in names} == {"models", "tasks", "worker", "mneme_worker-0.1.0.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_migrate_worker_and_a_fold_from_the_wheel_alone(
    installed: Path, postgres: Postgres, redis_url: str, broker: redis.Redis, tmp_path: Path
) -> None:
    from models import make_engine

    postgres.execute("create database wheel")
    environ = {
        "DATABASE_URL": postgres.url("wheel"), "REDIS_URL": redis_url, "MNEME_LLM__MODEL": "extract",
        "MNEME_SCHEDULES__SWEEP_SECONDS": "1", "MNEME_SCHEDULES__GRACE_SECONDS": "0",
    }  # fmt: skip
    engine: Engine = make_engine(environ["DATABASE_URL"].replace("postgresql:", "postgresql+psycopg:"))
    try:
        done = run([str(installed / "mneme"), "migrate"], environ, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        write(engine, "s", range(5))
        celery = [str(installed / "celery"), "-A", "worker"]
        with (
            process([*celery, "worker", "-l", "info"], environ, tmp_path / "worker.log", cwd=tmp_path) as worker,
            process([*celery, "beat"], environ, tmp_path / "beat.log", cwd=tmp_path),
        ):
            worker.wait_for_log(" ready.")
            wait_until(lambda: [n.level for n in active(engine, "s")] == [2], 30)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["beat.log", "worker.log"]
    finally:
        engine.dispose()
        postgres.execute("drop database wheel with (force)")
