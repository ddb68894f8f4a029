"""What keeps sessions that are due from being folded now, by the same words as the claim's."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Row

from models import sql
from models.breaker import Server, server_of
from models.runs import Count
from models.settings import Settings
from models.settings_sections import SpendSettings


def read_holds(
    connection: Connection, due: Mapping[str, int], server: Server, spend: SpendSettings
) -> dict[str, Row[tuple[object, ...]]]:
    """Return a row for each session of ``due``, which gives the level to be made: hold, probing, capped_alone, run_id."""
    which = {"session_ids": list(due), "levels": list(due.values())}
    return {row.session_id: row for row in connection.execute(sql.HOLDS, which | server.key | spend.caps)}


def held_back(connection: Connection, counts: Sequence[Count], settings: Settings) -> dict[str, str]:
    """Return those of the counted sessions that are due and not folded now, with the outcome that a job would have.

    One of ``paused``, ``already_running``, ``held``, ``backing_off``.
    """
    due = {counted.session_id: counted.level for counted in counts if counted.due}
    rows = read_holds(connection, due, server_of(settings), settings.spend)
    return {session_id: str(row.hold) for session_id, row in rows.items() if row.hold is not None}
