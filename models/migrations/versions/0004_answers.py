"""What stands in a summary of its input, and redoing extracts; as plain SQL in the file beside this one."""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add them; workers of the release before do not look at either."""
    connection: Any = op.get_bind().connection.driver_connection
    connection.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
