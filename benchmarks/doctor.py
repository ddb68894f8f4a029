"""How long the doctor takes: ``python -m benchmarks.doctor [NODES]`` (a million if none are named).

Beside it stands a floor, measured in the same run: one scan of all nodes joined with their texts, which is what it costs to
look at every node once.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, text

from models import Settings, make_engine, migrate
from models.doctor import diagnose, examine, one_state
from models.doctor_rules import RULES
from models.doctor_sql import PREPARE
from tests.support.servers import postgres_server

NODES_PER_SESSION = 187
FILL = Path(__file__).with_name("doctor_fill.sql")
FLOOR = text("""
    select count(*), sum(octet_length(p.content)), sum(n.token_count)
      from mneme.summary_nodes n join mneme.message_parts p on p.message_id = n.id and p.part_index = 0
""")


def main(nodes: int) -> None:
    """Fill a database, and print seconds for each rule, in all, and for the floor."""
    with postgres_server() as server:
        engine = make_engine(server.url("mneme").replace("postgresql:", "postgresql+psycopg:"))
        migrate(engine)
        print(f"filled in {_seconds(lambda: _fill(engine, nodes)):.0f} s: {_sizes(engine)}")
        _measure(engine)
        engine.dispose()


def _fill(engine: Engine, nodes: int) -> None:
    statements = FILL.read_text(encoding="utf-8").format(sessions=max(1, nodes // NODES_PER_SESSION))
    with engine.begin() as connection:
        connection.connection.driver_connection.execute(statements.encode())  # type: ignore[union-attr]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum analyze"))


def _sizes(engine: Engine) -> str:
    with engine.connect() as connection:
        counts = ", ".join(
            f"{connection.execute(text(f'select count(*) from mneme.{table}')).scalar_one():,} {table}"
            for table in ("sessions", "summary_nodes", "summary_edges", "messages", "message_parts", "compaction_runs")
        )
        size = connection.execute(text("select pg_size_pretty(pg_database_size(current_database()))")).scalar_one()
    return f"{counts}; {size}"


def _measure(engine: Engine) -> None:
    settings = Settings()
    with one_state(engine) as connection:
        connection.execute(PREPARE)
        connection.execute(FLOOR)  # warms the cache, as an hour's work would
        floor = _seconds(lambda: connection.execute(FLOOR).all())
        for rule in RULES:
            if rule.statement is not None:
                print(f"{_seconds(lambda rule=rule: examine(connection, settings, [rule])):8.2f} s  {rule.name}")
    found = diagnose(engine, settings)
    whole = min(_seconds(lambda: diagnose(engine, settings)) for _ in range(2))
    print(f"{whole:8.2f} s  in all; broken: {[finding.rule.name for finding in found if finding.violations]}")
    print(
        f"{floor:8.2f} s  the floor: one scan of the nodes and their texts; the doctor takes {whole / floor:.1f} of it"
    )


def _seconds(action: Callable[[], object]) -> float:
    before = time.perf_counter()
    action()
    return time.perf_counter() - before


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
