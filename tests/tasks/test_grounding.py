"""What is compared between a summary and its input, what counts as the same, and that no text takes long."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.nodes import SummaryNode
from tasks.grounding import Fidelity, items, measure
from tests.support.snapshots import snapshot

MATERIAL = (
    "On 3 May 2026 the team met Zoltan at https://example.org/plan?x=1 about ticket OPS-4411. "
    "The path /srv/data/base.sql and the function fold_batch() stay; 12,500 rows, version v1.4.2, ask ada@example.org."
)


def batch(*contents: str, **more: object) -> list[SummaryNode]:
    return [snapshot("s", number, content=content, token_count=1, **more) for number, content in enumerate(contents)]


def test_each_kind_is_found() -> None:
    assert items(MATERIAL) == {
        ("date", "2026-05-03"),
        ("name", "zoltan"),
        ("address", "https://example.org/plan?x=1"),
        ("identifier", "ops-4411"),
        ("path", "/srv/data/base.sql"),
        ("identifier", "fold_batch"),
        ("number", "12500"),
        ("identifier", "v1.4.2"),
        ("address", "ada@example.org"),
    }


def test_shares_are_counted_both_ways() -> None:
    found = measure("Zoltan and Bertram work on OPS-4411 and on OPS-9999.", batch(MATERIAL))
    # Bertram and OPS-9999 stand nowhere; Zoltan begins the sentence, where any word is capitalised, but is found in it.
    assert (found.supported, found.unsupported) == (round(1 / 3, 3), 2)
    assert found.survived == round(2 / 9, 3)


def test_nothing_to_compare_is_a_whole_share() -> None:
    assert measure("they agreed", batch("they talked")) == Fidelity(1.0, 1.0, 0)


SAME = {
    "a date in other words": ("Due by May 3rd, 2026.", "the end is 2026-05-03."),
    "a date without its year": ("It was on 3 May.", "the day 2026-05-03 was set"),
    "a month of a date": ("It was in May 2026.", "the day 2026-05-03 was set"),
    "a year of a date": ("it was 2026 then", "the day 2026-05-03 was set"),
    "yesterday as a date": ("It broke on 2026-02-28.", "it broke yesterday"),
    "a number with separators": ("there were 12500 of them", "there were 12,500 of them"),
    "small numbers are counted": ("there were 7 of them", "x, y and z"),
    "a name's genitive": ("it is the friend Ada's", "a friend called Ada left"),
    "a name in lower case": ("they chose Postgres", "they chose postgres"),
    "full width digits": ("the room is 4711", "the room is \uff14\uff17\uff11\uff11"),
    "Arabic digits": ("the room is 4711", "\u0627\u0644\u063a\u0631\u0641\u0629 \u0664\u0667\u0661\u0661"),
    "words among Chinese": ("it is PostgreSQL15", "\u4f7f\u7528PostgreSQL15\u6570\u636e\u5e93"),
    "a part of an address": ("see example.org", "see https://example.org/plan"),
    "the end of a sentence": ("look at /srv/data.", "it lies in /srv/data, as ever"),
}


@pytest.mark.parametrize(("summary", "material"), SAME.values(), ids=SAME.keys())
def test_what_is_the_same(summary: str, material: str) -> None:
    assert measure(summary, batch(material)).unsupported == 0


OTHER = {
    "another day": ("Due by 4 May 2026.", "the end is 2026-05-03"),
    "another year": ("Due by 3 May 2027.", "the end is 2026-05-03"),
    "part of a number": ("there were 125 of them", "there were 12500 of them"),
    "a number's decimals": ("it costs 4.5 now", "it costs 4.55 now"),
    "another name": ("they asked Bob", "they asked Bobby"),
    "another ticket": ("see OPS-44", "see OPS-4X1"),
    "another path": ("look at /srv/other", "it lies in /srv/data"),
    "a day far from the snapshot's time": ("It broke on 2026-05-28.", "it broke yesterday"),
}


@pytest.mark.parametrize(("summary", "material"), OTHER.values(), ids=OTHER.keys())
def test_what_is_not(summary: str, material: str) -> None:
    assert measure(summary, batch(material)).unsupported == 1


def test_snapshots_without_times_have_no_days_nearby() -> None:
    found = measure("It broke on 2026-02-28.", batch("it broke yesterday", started_at=None, ended_at=None))
    assert found.unsupported == 1


@pytest.mark.parametrize("year", [2, 9998])
def test_times_at_the_ends_of_the_calendar(year: int) -> None:
    at = datetime(year, 1, 1, tzinfo=UTC)
    assert measure("x 2026-02-28", batch("y", started_at=at, ended_at=at + timedelta(days=364))).unsupported == 1


SLOW = {
    "one word": "a" * 32_000,
    "one number": "1" * 32_000,
    "hyphens": "w-" * 16_000,
    "dots": "a." * 16_000,
    "numbers with dots": "1." * 16_000,
    "slashes": "/a" * 16_000,
    "at signs": "a@" * 16_000,
    "schemes": "a+" * 16_000 + "://",
    "times": "2026-03-01T" * 2_900,
    "just short enough to be looked at": ("w-" * 149 + " ") * 107,
    "letters of other scripts": "\u00e9-" * 16_000,
    "dates": "1 may " * 5_300,
    "numbers of all kinds": " ".join(map(str, range(10_000, 15_000))),
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW.keys())
def test_no_text_takes_long(text: str) -> None:
    """A regular expression that looks to the end of a text from each of its characters took a minute for some of these."""
    started = time.perf_counter()
    measure(text, batch(*[text] * 5))
    assert time.perf_counter() - started < 8


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
@settings(max_examples=200, deadline=None)
def test_shares_are_shares_whatever_the_text(summary: str, material: str) -> None:
    found = measure(summary, batch(material))
    assert 0 <= found.survived <= 1
    assert 0 <= found.supported <= 1
    assert measure(material, batch(material)).unsupported == 0
