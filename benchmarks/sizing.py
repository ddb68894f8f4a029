"""What a worker needs and gives: ``python -m benchmarks.sizing [CALL_SECONDS]``, for slots of 8, 32 and 128.

A model's server that takes so many seconds for an answer (2), sessions that are all due, one worker. Beside the folds of a
minute stands what the slots allow at most: slots x 60 / CALL_SECONDS. Memory is the worker's own (unique set size).
"""

import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import Engine, TextClause, text

from benchmarks.servers import migrated_postgres
from tests.support.model_server import model_server, saves
from tests.support.processes import celery_worker, mneme, run
from tests.support.servers import redis_server

SLOTS = (8, 32, 128)
SNAPSHOTS = 5
ROUNDS = 6  # folds of each slot
WRITE = text("""
    select mneme.write_l1_snapshot('s' || session, number * 10 + 1, number * 10 + 10,
                                   repeat('Ada chose Postgres for service ' || number || '. ', 40))
      from generate_series(1, :sessions) session, generate_series(1, :snapshots) number
""")
FOLDS = text("select count(*) from mneme.compaction_runs where state = 'succeeded'")
CONNECTIONS = text(
    "select count(*) from pg_stat_activity where application_name like 'mneme%' and pid <> pg_backend_pid()"
)


def main(call_seconds: float) -> None:
    """Print a line for each number of slots."""
    print(f"a call takes {call_seconds:g} s; one worker, its threads")
    print("slots  folds/min  of at most  MB idle  MB busy  connections  CPU s/1,000 folds")
    for slots in SLOTS:
        with migrated_postgres() as engine, redis_server() as redis_url, tempfile.TemporaryDirectory() as directory:
            _measure(engine, redis_url, Path(directory), slots, call_seconds)


def _measure(engine: Engine, redis_url: str, directory: Path, slots: int, call_seconds: float) -> None:
    sessions = slots * ROUNDS
    with engine.begin() as connection:
        connection.execute(WRITE, {"sessions": sessions, "snapshots": SNAPSHOTS})
    with model_server() as model:
        model.answer = saves("Ada chose Postgres.", after_seconds=call_seconds)
        database_url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        environ = {
            "DATABASE_URL": database_url, "REDIS_URL": redis_url, "OPENAI_BASE_URL": model.url,
            "MNEME_LLM__MODEL": "measured", "MNEME_WORKER__CONCURRENCY": str(slots),
        }  # fmt: skip
        with celery_worker(environ, directory / "worker.log") as worker:
            time.sleep(3)
            idle = _megabytes(worker.popen.pid)
            before = _cpu_seconds(worker.popen.pid)
            begun = time.monotonic()
            names = [f"s{number}" for number in range(1, sessions + 1)]
            run(mneme("enqueue", *names), environ)
            connections, busy = 0, idle
            while (folds := _count(engine, FOLDS)) < sessions and time.monotonic() < begun + 120:
                connections = max(connections, _count(engine, CONNECTIONS))
                busy = max(busy, _megabytes(worker.popen.pid))
                time.sleep(0.2)
            seconds = time.monotonic() - begun
            cpu = _cpu_seconds(worker.popen.pid) - before
    most = slots * 60 / call_seconds
    print(
        f"{slots:5}  {folds * 60 / seconds:9,.0f}  {most:10,.0f}  {idle:7.0f}  {busy:7.0f}  {connections:11}"
        f"  {cpu / folds * 1000:17.1f}",
        flush=True,
    )


def _count(engine: Engine, statement: TextClause) -> int:
    with engine.connect() as connection:
        return int(connection.execute(statement).scalar_one())


def _megabytes(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = [int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_")]
    return sum(private) / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
