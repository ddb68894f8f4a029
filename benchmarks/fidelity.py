"""What of the snapshots survives in their folds: ``python -m benchmarks.fidelity FILE.jsonl``.

The file is one for ``mneme import``. Every session is folded by the model that the settings name (``MNEME_LLM__MODEL``), or by
the extract where none is named, in a database of its own. The shares are those of ``tasks.grounding``: of what can be compared
letter by letter in the parents, how much stands in the fold (survived); of that in the fold, how much stands in the parents
(supported); how many items stand in none.
"""

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import Engine, text

from models import Settings, load_settings, make_engine, migrate
from tasks import L2Runner
from tests.support.servers import postgres_server

FIGURES = text("""
    select coalesce(session_id, 'all') as session_id, count(*) filter (where level = 1) as snapshots,
           count(*) filter (where level > 1) as folds,
           coalesce(sum(token_count) filter (where level = 1 and superseded_by is not null), 0) as before,
           coalesce(sum(token_count) filter (where level > 1), 0) as after,
           avg((fidelity ->> 'survived')::float8) as survived, avg((fidelity ->> 'supported')::float8) as supported,
           coalesce(sum((fidelity ->> 'unsupported')::integer), 0) as unsupported,
           coalesce(sum((fidelity ->> 'secrets')::integer), 0) as secrets
      from mneme.summary_nodes group by rollup (session_id) order by grouping(session_id), session_id
""")


def main(file: Path) -> None:
    """Import the file, fold everything, and print a line for each session."""
    with postgres_server() as server:
        url = server.url("postgres")
        settings = load_settings({"MNEME_LLM__MODEL": "extract", **os.environ, "DATABASE_URL": url, "REDIS_URL": ""})
        engine = make_engine(settings.require_database_url())
        migrate(engine)
        command = [str(Path(sys.executable).parent / "mneme"), "import", str(file)]
        subprocess.run(
            command, env={**os.environ, "DATABASE_URL": url, "REDIS_URL": ""}, check=True, capture_output=True
        )
        _fold_all(engine, settings)
        _print(engine)
        engine.dispose()


def _fold_all(engine: Engine, settings: Settings) -> None:
    with engine.connect() as connection:
        sessions = list(connection.execute(text("select id from mneme.sessions order by id")).scalars())
    for session_id in sessions:
        while L2Runner(session_id, settings=settings, engine=engine).run().outcome == "folded":
            pass


def _print(engine: Engine) -> None:
    with engine.connect() as connection:
        rows = list(connection.execute(FIGURES))
    print(f"{'session':12}{'snapshots':>10}{'folds':>7}{'tokens before':>15}{'after':>8}", end="")
    print(f"{'survived':>10}{'supported':>11}{'unsupported':>13}{'secrets':>9}")
    for row in rows:
        shares = "".join(f"{'-' if share is None else f'{share:.0%}':>{width}}" for share, width in
                         ((row.survived, 10), (row.supported, 11)))  # fmt: skip
        print(
            f"{row.session_id:12}{row.snapshots:10}{row.folds:7}{row.before:15}{row.after:8}{shares}"
            f"{row.unsupported:13}{row.secrets:9}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
