"""What a sweep costs among a thousand sessions and among a million: ``python -m benchmarks.sweep [FEW MANY]``.

A thousand new nodes lie in a thousand sessions, five of which are due; every other session holds one node that was swept
long ago. The floor is a transaction of mneme's that does nothing.
"""

import statistics
import sys
import time
from collections.abc import Callable

from sqlalchemy import Connection, Engine, text

from benchmarks.servers import migrated_postgres
from models import transaction
from models.breaker import Server
from models.settings import MnemeSettings, ScheduleSettings
from models.sweeping import sweep_once

NEW_NODES = 1000
ROUNDS = 15

_FILL = """
    set local session_replication_role = replica;
    insert into mneme.sessions (id) select 's' || g from generate_series(1, %(sessions)s) g;
    create temporary table made on commit drop as
        select gen_random_uuid() as id, 's' || g as session_id, 0 as position from generate_series(1, %(sessions)s) g
         union all
        select gen_random_uuid(), 's' || case when g <= 20 then g %% 5 + 1 else g * (%(sessions)s / 1000) end, g
          from generate_series(1, %(new)s) g;
    insert into mneme.messages (id, session_id, role, is_summary) select id, session_id, 'assistant', true from made;
    insert into mneme.summary_nodes (id, session_id, level, span_start, span_end, token_count, swept_at, created_at)
        select id, session_id, 1, position * 10, position * 10 + 9, 100,
               case when position = 0 then now() - interval '1 day' end, now() - interval '1 hour' from made;
    update mneme.sweep_state set full_counted_at = now();
"""


def main() -> None:
    """Print both medians, their ratio, and the floor."""
    few, many = (int(argument) for argument in sys.argv[1:]) if len(sys.argv) == 3 else (1000, 1_000_000)
    medians = []
    for sessions in (few, many):
        with migrated_postgres() as engine:
            _fill(engine, sessions)
            floor = _median(engine, lambda connection: connection.execute(text("select 1")))
            took = _median(engine, _sweep)
            medians.append(took)
            print(
                f"{sessions:>9,} sessions: {took * 1000:7.1f} ms for {NEW_NODES:,} new nodes, floor {floor * 1000:.1f} ms"
            )
    print(f"ratio {medians[1] / medians[0]:.2f}")


def _fill(engine: Engine, sessions: int) -> None:
    with engine.begin() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute(_FILL % {"sessions": sessions, "new": NEW_NODES})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum analyze"))


def _sweep(connection: Connection) -> None:
    schedules = ScheduleSettings(sweep_batch=NEW_NODES)
    swept = sweep_once(connection, MnemeSettings(), schedules, Server("", "extract"), room=NEW_NODES)
    assert (len(swept.taken), swept.marked) == (5, NEW_NODES - 20), swept


class _Undo(Exception):
    """Rolls a round back, so that the next finds the same rows."""


def _median(engine: Engine, work: Callable[[Connection], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        try:
            with transaction(engine) as connection:
                work(connection)
                times.append(time.perf_counter() - began)
                raise _Undo
        except _Undo:
            pass
    return statistics.median(times)


if __name__ == "__main__":
    main()
