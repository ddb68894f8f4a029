"""What may reach Postgres: refused here in one sentence, not there as a riddle about types."""

from datetime import datetime
from uuid import UUID

from models.errors import InvalidNode
from models.nodes import SummaryNode
from models.text import MAX_SESSION_ID_BYTES, byte_length, clean_text

_MAX_SMALL, _MAX_INTEGER, _MAX_BIGINT = 3, 2**31 - 1, 2**63 - 1


def check_session_id(session_id: object) -> str:
    """Return the id of a session if it can be one; it is never cleaned, which would make another id of it.

    Raises:
        InvalidNode: it is no text of 1 to 255 bytes, or holds NUL or lone surrogates.
    """
    if not isinstance(session_id, str):
        raise InvalidNode(f"a session id must be text, not {type(session_id).__name__}")
    if clean_text(session_id) != session_id:
        raise InvalidNode("a session id must not hold NUL or lone surrogates")
    if not 1 <= byte_length(session_id) <= MAX_SESSION_ID_BYTES:
        raise InvalidNode(f"a session id must have 1 to {MAX_SESSION_ID_BYTES} bytes, not {byte_length(session_id)}")
    return session_id


def known_session_id(session_id: str) -> str:
    """Return the id to look for: itself, or "", which no session has, for what Postgres could not even be asked.

    Raises:
        InvalidNode: it is no text.
    """
    if not isinstance(session_id, str):
        raise InvalidNode(f"a session id must be text, not {type(session_id).__name__}")
    return session_id if clean_text(session_id) == session_id else ""


def check_node(node: SummaryNode) -> None:
    """Make sure that each field of a node has the type and range that its column has; the rest the database knows.

    Raises:
        InvalidNode: one has not; the message names it.
    """
    check_session_id(node.session_id)
    for name, problem in (
        *((name, _number_problem(getattr(node, name), most, optional)) for name, most, optional in _NUMBERS),
        *((name, _text_problem(getattr(node, name))) for name in ("model", "prompt_version")),
        *((name, _id_problem(getattr(node, name))) for name in ("id", "run_id")),
        *((name, _time_problem(getattr(node, name))) for name in ("started_at", "ended_at")),
        ("content", None if isinstance(node.content, str) else "must be text"),
        ("degraded", None if isinstance(node.degraded, bool) else "must be true or false"),
        ("parent_node_ids", _ids_problem(node.parent_node_ids)),
    ):
        if problem:
            raise InvalidNode(f"session {node.session_id!r}: {name} {problem}")


_NUMBERS = (
    ("level", _MAX_INTEGER, False),
    ("span_start", _MAX_BIGINT, False),
    ("span_end", _MAX_BIGINT, False),
    ("token_count", _MAX_INTEGER, True),
    ("reported_tokens", _MAX_INTEGER, True),
    ("compaction_level", _MAX_SMALL, False),
)


def _number_problem(value: object, most: int, optional: bool) -> str | None:
    if (value is None and optional) or (type(value) is int and -most <= value <= most):
        return None
    return f"must be a whole number of at most {most}"


def _text_problem(value: object) -> str | None:
    if value is None or (isinstance(value, str) and clean_text(value) == value):
        return None
    return "must be text without NUL and lone surrogates"


def _id_problem(value: object) -> str | None:
    return None if value is None or isinstance(value, UUID) else f"must be a UUID, not {type(value).__name__}"


def _ids_problem(value: object) -> str | None:
    good = isinstance(value, list | tuple) and all(isinstance(parent, UUID) for parent in value)
    return None if good else "must be a tuple of UUIDs"


def _time_problem(value: object) -> str | None:
    if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
        return None
    return "must be a datetime with a time zone"
