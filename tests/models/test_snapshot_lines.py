"""Lines of a file of snapshots: what is taken, what is refused, and that no reason quotes the content."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from models import InvalidNode
from models.snapshot_lines import MAX_LINE_BYTES, numbered_lines, parse_line

GOOD: dict[str, Any] = {"session_id": "s", "span_start": 1, "span_end": 9, "content": "Ada chose the blue one."}
SECRET = "Ada chose"


def line(**values: Any) -> bytes:
    return json.dumps(GOOD | values).encode()


def test_a_line_becomes_a_node() -> None:
    node = parse_line(line(started_at="2026-03-01T10:00:00+02:00", ended_at="2026-03-01T09:00:00Z", token_count=7))
    assert (node.session_id, node.level, node.span_start, node.span_end) == ("s", 1, 1, 9)
    assert (node.content, node.token_count) == (GOOD["content"], 7)
    assert node.started_at == datetime(2026, 3, 1, 8, tzinfo=UTC)
    assert node.ended_at == datetime(2026, 3, 1, 9, tzinfo=UTC)


def test_what_is_optional_may_be_left_out_or_null() -> None:
    assert parse_line(line()) == parse_line(line(started_at=None, ended_at=None, token_count=None))


def test_what_postgres_cannot_hold_is_taken_out_of_the_content() -> None:
    assert parse_line(line(content="a\0b\ud800c")).content == "abc"


def test_the_longest_content_fits_into_a_line_however_it_is_escaped() -> None:
    raw = json.dumps(GOOD | {"content": "\x01" * 32_768}).encode()
    assert len(parse_line(raw).content) == 32_768


BAD = {
    "no JSON": (b'{"session_id": "s"', "not JSON"),
    "no JSON at all": (b"Ada chose", "not JSON"),
    "brackets in brackets": (b"[" * 100_000, "not JSON"),
    "a number without end": (b"1" * 5000, "not JSON"),
    "no object": (b"[1, 2]", "not an object"),
    "invalid UTF-8": (b'{"session_id": "\xff"}', "not valid UTF-8 (at byte 17)"),
    "a surrogate in UTF-8": (b'{"session_id": "\xed\xa0\x80"}', "not valid UTF-8"),
    "missing key": (json.dumps({k: v for k, v in GOOD.items() if k != "span_end"}).encode(), "key span_end is missing"),
    "unknown key": (line(started="x"), "key 'started' is unknown"),
    "key twice": (line()[:-1] + b', "content": "x"}', "given twice"),
    "text as a number": (line(span_start="1"), "span_start must be a whole number, not text"),
    "fraction": (line(span_start=1.0), "span_start must be a whole number, not a number with a fraction"),
    "infinity": (line(span_start=float("inf")), "span_start must be a whole number"),
    "boolean": (line(token_count=True), "token_count must be a whole number, not true or false"),
    "null": (line(span_end=None), "span_end must be a whole number, not null"),
    "content is a list": (line(content=[SECRET]), "content must be text, not a list"),
    "content is null": (line(content=None), "content must be text, not null"),
    "time is a number": (line(started_at=1), "started_at must be a time as text, not a number"),
    "session id is a number": (line(session_id=5), "session id must be text, not int"),
    "too large a number": (line(span_end=2**63 - 1), "span_end must lie between"),
    "negative tokens": (line(token_count=-1), "token_count must lie between 0 and"),
    "blank": (line(content=" \n\u200b"), "blank"),
    "nothing but NUL": (line(content="\0"), "blank"),
    "too long": (line(content=SECRET + "é" * 16_384), "at most 32768"),
    "reversed": (line(span_start=10), "the span is reversed"),
    "naive": (line(started_at="2026-03-01T09:00:00"), "started_at has no time zone"),
    "no time": (line(ended_at="yesterday"), "ended_at is no ISO 8601 time"),
    "no day": (line(ended_at="2026-02-30T09:00:00Z"), "ended_at is no ISO 8601 time"),
    "before all years": (line(started_at="0001-01-01T00:00:00+14:00"), "years 2 to 9998"),
    "after all years": (line(ended_at="9999-12-31T23:59:59Z"), "years 2 to 9998"),
    "times reversed": (line(started_at="2026-03-02T09:00Z", ended_at="2026-03-01T09:00Z"), "times are reversed"),
    "empty session id": (line(session_id=""), "1 to 255 bytes"),
    "long session id": (line(session_id="é" * 128), "1 to 255 bytes, not 256"),
    "NUL in the session id": (line(session_id="a\0b"), "must not hold NUL"),
    "surrogate in the session id": (line(session_id="a\ud800"), "must not hold NUL or lone surrogates"),
    "a line without end": (line(content="x" * MAX_LINE_BYTES), "longer than"),
}


@pytest.mark.parametrize(("raw", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_line_is_refused_with_one_sentence(raw: bytes, reason: str) -> None:
    with pytest.raises(InvalidNode) as caught:
        parse_line(raw)
    told = str(caught.value)
    assert reason in told
    assert SECRET not in told
    assert "\n" not in told
    assert len(told) < 250


def test_lines_are_numbered_and_long_ones_cut() -> None:
    long = b"x" * (3 * MAX_LINE_BYTES)
    found = list(numbered_lines(io.BytesIO(b"\xef\xbb\xbfone\n\n" + long + b"\nlast")))
    assert [(found.number, found.raw[:5], found.size) for found in found] == [
        (1, b"one\n", 7),
        (2, b"\n", 1),
        (3, b"xxxxx", len(long) + 1),
        (4, b"last", 4),
    ]
    assert len(found[2].raw) == MAX_LINE_BYTES + 1


@pytest.mark.parametrize("extra", [-1, 0, 1, 2])
def test_a_line_at_the_limit_ends_where_it_ends(extra: int) -> None:
    first = b"x" * (MAX_LINE_BYTES + extra) + b"\n"
    assert [found.size for found in numbered_lines(io.BytesIO(first + b"y\n"))] == [len(first), 2]
