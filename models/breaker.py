"""The breaker: while the model's server does not answer, the whole fleet waits, and one call at a time tries.

After Michael Nygard, "Release It!" (2007), with its state in a row instead of a process: a hundred workers then make one
failing call a minute, not a hundred. A row is there only while something is wrong; the first sound answer deletes it.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from models import sql
from models.errors import FoldFailed
from models.settings import EXTRACT, LlmSettings, Settings
from models.text import clean_text
from models.urls import redact

OPENAI = "https://api.openai.com/v1"
MOST_ERROR_CHARACTERS = 500


@dataclass(frozen=True)
class Server:
    """Whom a run asks: the base URL, without credentials, and the model. Each such pair has a breaker."""

    base_url: str
    model: str

    @property
    def key(self) -> dict[str, str]:
        """The primary key of its breaker."""
        return {"base_url": self.base_url, "model": self.model}


def server_of(settings: Settings) -> Server:
    """Return the server and the model of the settings; the extract is no server, and has no breaker to open."""
    model = settings.llm.model or ""
    return Server("" if model == EXTRACT else redact(settings.llm.base_url or OPENAI), model)


def take_probe(connection: Connection, server: Server, run_id: UUID) -> bool:
    """Take the one call that is let through when the breaker's time is up; say whether we got it.

    It is taken for as long as the run is running: a probe that never comes back is given up with its lease.
    """
    connection.execute(sql.LOCK_BREAKER, server.key)
    return connection.execute(sql.TAKE_PROBE, server.key | {"run_id": run_id}).rowcount == 1


def note_answer(connection: Connection, server: Server) -> bool:
    """Note that the server answered: the breaker closes, and what failed by its settings is due again.

    Whatever settings those were: what mends them may be another model's name or another address.

    Returns:
        Whether the breaker was open.
    """
    closed = connection.execute(sql.CLOSE_BREAKER, server.key).scalar_one_or_none()
    connection.execute(sql.RETRY_CONFIGURATION_FAILURES, server.key | {"closed": bool(closed)})
    return bool(closed)


def note_failure(
    connection: Connection, server: Server, failure: FoldFailed, session_id: str, run_id: UUID, llm: LlmSettings
) -> bool:
    """Note a failed call. Opens the breaker at once when the settings are to blame, or after so many failures in a row.

    One session alone never opens it by failures of the server: it is its prompt that may be to blame.

    Returns:
        Whether the breaker opened now, or stays open because its probe failed.
    """
    if failure.blame == "nobody":
        return False
    about = {"session_id": session_id, "error": clean_text(str(failure))[:MOST_ERROR_CHARACTERS]}
    limit = 1 if failure.blame == "settings" else llm.breaker_failures
    connection.execute(sql.COUNT_FAILURE, server.key | about)
    opened = connection.execute(
        sql.OPEN_BREAKER, server.key | {"run_id": run_id, "failures": limit, "seconds": llm.breaker_seconds}
    )
    return opened.rowcount == 1
