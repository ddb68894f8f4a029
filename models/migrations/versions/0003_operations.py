"""Indexes for those who look after the service, whom a run asked, resuming a session; plain SQL in the file beside this one."""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add them; workers of the release before do not notice."""
    connection: Any = op.get_bind().connection.driver_connection
    connection.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
