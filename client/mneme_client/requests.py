"""What is asked of the database: each a single statement, on the functions and the view that are mneme's contract."""

from dataclasses import dataclass, field
from datetime import datetime

from mneme_client.errors import InvalidInput
from mneme_client.nodes import COLUMNS
from mneme_client.text import clean_text

MAX_SESSION_ID_BYTES = 255
_MAX_INTEGER, _MAX_BIGINT = 2**31 - 1, 2**63 - 1

# The casts tell every driver the same types, whatever it makes of a Python value.
_WRITE = """select mneme.write_l1_snapshot(
    cast(%(session_id)s as text), cast(%(span_start)s as bigint), cast(%(span_end)s as bigint), cast(%(content)s as text),
    cast(%(started_at)s as timestamptz), cast(%(ended_at)s as timestamptz), cast(%(token_count)s as integer))"""

_ACTIVE = f"""select {", ".join(COLUMNS)} from mneme.active_summary_nodes
    where session_id = cast(%(session_id)s as text) order by span_start, span_end, id"""

_MEMORY = "select mneme.memory(cast(%(session_id)s as text), cast(%(token_budget)s as integer))"


@dataclass(frozen=True)
class Request:
    """A statement with its parameters in the style ``%(name)s``.

    ``writes_to`` is the session that it writes to: such a request is guarded by a savepoint, and the session is sent to
    the worker after the commit.
    """

    statement: str
    parameters: dict[str, str | int | datetime | None] = field(repr=False)
    writes_to: str | None = None


def write_request(
    session_id: str,
    span_start: int,
    span_end: int,
    content: str,
    started_at: datetime | None,
    ended_at: datetime | None,
    token_count: int | None,
) -> Request:
    """Return the request that writes a Level 1 snapshot; the rest of the rules is the database's to judge.

    Raises:
        InvalidInput: a value is of a type that would reach the database as something else.
    """
    check_session_id(session_id)
    who = f"session {session_id!r}"
    for name, number, largest in (
        ("span_start", span_start, _MAX_BIGINT),
        ("span_end", span_end, _MAX_BIGINT),
        ("token_count", token_count, _MAX_INTEGER),
    ):
        if not (number is None and name == "token_count"):
            _check_number(who, name, number, largest)
    if not isinstance(content, str):
        raise InvalidInput(f"{who}: content must be text, not {type(content).__name__}")
    for name, moment in (("started_at", started_at), ("ended_at", ended_at)):
        if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
            raise InvalidInput(f"{who}: {name} must be a datetime with a time zone")
    return Request(
        _WRITE,
        {
            "session_id": session_id,
            "span_start": span_start,
            "span_end": span_end,
            "content": clean_text(content),
            "started_at": started_at,
            "ended_at": ended_at,
            "token_count": token_count,
        },
        writes_to=session_id,
    )


def active_request(session_id: str) -> Request:
    """Return the request that reads the session's active nodes.

    Raises:
        InvalidInput: it is no session id.
    """
    return Request(_ACTIVE, {"session_id": check_session_id(session_id)})


def memory_request(session_id: str, token_budget: int) -> Request:
    """Return the request that reads the session's memory as text.

    Raises:
        InvalidInput: it is no session id, or no budget.
    """
    check_session_id(session_id)
    _check_number(f"session {session_id!r}", "token_budget", token_budget, _MAX_INTEGER)
    if token_budget < 0:  # refused here, since a refusal of the database would abort the caller's transaction
        raise InvalidInput(f"session {session_id!r}: token_budget must be 0 or more")
    return Request(_MEMORY, {"session_id": session_id, "token_budget": token_budget})


def check_session_id(session_id: object) -> str:
    """Return the id of a session if it can be one; unlike content it is never cleaned, which would make another id of it.

    Raises:
        InvalidInput: it is no text of 1 to 255 bytes, or holds NUL or lone surrogates.
    """
    if not isinstance(session_id, str):
        raise InvalidInput(f"a session id must be text, not {type(session_id).__name__}")
    if clean_text(session_id) != session_id:
        raise InvalidInput("a session id must not hold NUL or lone surrogates")
    if not 1 <= len(session_id.encode()) <= MAX_SESSION_ID_BYTES:
        raise InvalidInput(f"a session id must have 1 to {MAX_SESSION_ID_BYTES} bytes, not {len(session_id.encode())}")
    return session_id


def _check_number(who: str, name: str, number: object, largest: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidInput(f"{who}: {name} must be a whole number, not {type(number).__name__}")
    if not -largest <= number <= largest:
        raise InvalidInput(f"{who}: {name} must be between {-largest} and {largest}")
