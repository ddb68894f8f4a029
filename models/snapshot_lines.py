"""Snapshots as lines of JSON: what ``mneme import`` reads, checked before it reaches the database.

A reason says what is wrong with a line and never quotes its content.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

from models.checks import check_session_id
from models.errors import InvalidNode
from models.nodes import SummaryNode
from models.text import MAX_CONTENT_BYTES, byte_length, clean_text, is_blank

REQUIRED = ("session_id", "span_start", "span_end", "content")
OPTIONAL = ("started_at", "ended_at", "token_count")

# The longest content, every byte of it written as six characters of JSON, takes a fifth of this. The limit keeps a file
# without line breaks from being read into memory whole.
MAX_LINE_BYTES = 1_048_576

_MAX_INTEGER, _MAX_BIGINT = 2**31 - 1, 2**63 - 1
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Line:
    """One line: its number from 1, its bytes (cut off beyond ``MAX_LINE_BYTES``), and how many the file had."""

    number: int
    raw: bytes
    size: int


def numbered_lines(stream: BinaryIO) -> Iterator[Line]:
    """Read a stream line by line, holding no more than one line's limit of it."""
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        size = len(raw)
        last = raw
        while len(last) > MAX_LINE_BYTES and not last.endswith(b"\n"):
            last = stream.readline(MAX_LINE_BYTES + 1)
            size += len(last)
        yield Line(number, raw.removeprefix(_BOM) if number == 1 else raw, size)


def parse_line(raw: bytes) -> SummaryNode:
    """Make a Level 1 node of a line, its content cleaned of what Postgres cannot hold.

    Raises:
        InvalidNode: what is wrong with the line, in one sentence.
    """
    told = _parse_object(raw)
    for key in REQUIRED:
        if key not in told:
            raise InvalidNode(f"the key {key} is missing")
    for key in told:
        if key not in REQUIRED and key not in OPTIONAL:
            raise InvalidNode(f"the key {key[:40]!r} is unknown: expected {', '.join((*REQUIRED, *OPTIONAL))}")
    span_start, span_end = (
        _whole_number(told, key, -_MAX_BIGINT, _MAX_BIGINT - 1) for key in ("span_start", "span_end")
    )
    started_at, ended_at = (_moment(told, key) for key in ("started_at", "ended_at"))
    if span_start > span_end:
        raise InvalidNode("the span is reversed: span_start must not be greater than span_end")
    if started_at is not None and ended_at is not None and started_at > ended_at:
        raise InvalidNode("the times are reversed: started_at must not be later than ended_at")
    return SummaryNode(
        session_id=check_session_id(told["session_id"]),
        level=1,
        span_start=span_start,
        span_end=span_end,
        content=_content(told["content"]),
        started_at=started_at,
        ended_at=ended_at,
        token_count=None if told.get("token_count") is None else _whole_number(told, "token_count", 0, _MAX_INTEGER),
    )


def _parse_object(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_LINE_BYTES:
        raise InvalidNode(f"the line is longer than {MAX_LINE_BYTES} bytes")
    try:
        text = raw.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidNode(f"the line is not valid UTF-8 (at byte {error.start + 1})") from None
    try:
        told = json.loads(text, object_pairs_hook=_unique)
    except InvalidNode:
        raise
    except json.JSONDecodeError as error:
        raise InvalidNode(f"the line is not JSON: it goes wrong at column {error.colno}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets within brackets
        raise InvalidNode("the line is not JSON that can be read") from None
    if not isinstance(told, dict):
        raise InvalidNode("the line is JSON, but not an object")
    return told


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    told = dict(pairs)
    if len(told) != len(pairs):
        raise InvalidNode("a key is given twice")
    return told


def _whole_number(told: dict[str, Any], key: str, least: int, most: int) -> int:
    value = told[key]
    if type(value) is not int:
        raise InvalidNode(f"{key} must be a whole number, not {_json_type(value)}")
    if not least <= value <= most:
        raise InvalidNode(f"{key} must lie between {least} and {most}")
    return value


def _moment(told: dict[str, Any], key: str) -> datetime | None:
    value = told.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidNode(f"{key} must be a time as text, not {_json_type(value)}")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidNode(f"{key} is no ISO 8601 time, such as 2026-03-01T09:00:00+00:00") from None
    if moment.tzinfo is None:
        raise InvalidNode(f"{key} has no time zone: end it with Z or an offset such as +02:00")
    try:
        moment = moment.astimezone(UTC)
        # A reader's own zone must not push it out of what a datetime can hold, or it could never be read again.
        if not 1 < moment.year < 9999:
            raise OverflowError
    except OverflowError:
        raise InvalidNode(f"{key} must lie in the years 2 to 9998") from None
    return moment


def _content(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidNode(f"content must be text, not {_json_type(value)}")
    content = clean_text(value)
    if is_blank(content):
        raise InvalidNode("the content is blank")
    if byte_length(content) > MAX_CONTENT_BYTES:
        raise InvalidNode(f"the content has {byte_length(content)} bytes, at most {MAX_CONTENT_BYTES} are allowed")
    return content


def _json_type(value: object) -> str:
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number with a fraction",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return "null" if value is None else names[type(value)]
