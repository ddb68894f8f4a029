"""The service as a whole: paused, last swept, last examined; indexes for caps and retention; as plain SQL beside this."""

from pathlib import Path
from typing import Any

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add them; workers of the release before do not look at either, so a pause of everything does not reach them."""
    connection: Any = op.get_bind().connection.driver_connection
    connection.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
