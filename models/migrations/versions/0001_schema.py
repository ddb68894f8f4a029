"""The schema of mneme, as plain SQL in the file beside this one."""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create everything; the schema itself exists, since Alembic's version table is in it."""
    # The driver's own connection: a script of many statements takes no parameters and no escaping of percent signs.
    connection: Any = op.get_bind().connection.driver_connection
    connection.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
