"""What the database's refusals mean, whichever driver brings them."""

from mneme_client.errors import (
    DatabaseError,
    InvalidInput,
    MnemeClientError,
    SchemaMissing,
    SnapshotConflict,
    UnsupportedConnection,
)

_REFUSALS = {"22023": InvalidInput, "23505": SnapshotConflict}
# No such schema, function or table; no right to it.
_SCHEMA = ("3F000", "42883", "42P01", "42501")


def refusal(error: BaseException | None, raised: BaseException) -> MnemeClientError:
    """Make an error of ours of a driver's, leaving out its details and parameters: they may quote the content.

    Args:
        error: the driver's own error, as far as it is known.
        raised: what was raised around it; only the name of its class is told.
    """
    if isinstance(raised, UnicodeError):
        return UnsupportedConnection("the connection's client_encoding lacks characters of the text: use UTF8")
    sqlstate, message = _diagnosis(error)
    if sqlstate is None:
        return DatabaseError(f"the database was not asked, or did not answer ({type(error or raised).__name__})")
    message = message.removeprefix("mneme: ") or "no reason given"
    if sqlstate in _REFUSALS:
        return _REFUSALS[sqlstate](message)
    kind, advice = DatabaseError, ""
    if sqlstate in _SCHEMA:
        kind, advice = SchemaMissing, ": run `mneme migrate`, and `mneme grant ROLE` for the role of this connection"
    refused = kind(f"the database refused: {message} (SQLSTATE {sqlstate}){advice}")
    refused.sqlstate = sqlstate
    return refused


def _diagnosis(error: BaseException | None) -> tuple[str | None, str]:
    """Return SQLSTATE and the primary message, from psycopg, psycopg2 or (inside SQLAlchemy's wrapping) asyncpg."""
    sqlstate = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    message = getattr(getattr(error, "diag", None), "message_primary", None)
    if message is None and error is not None:
        message = getattr(error.__cause__, "message", None)
    return sqlstate, str(message or "")
