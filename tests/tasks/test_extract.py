from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import SummaryNode, estimate_tokens
from models.text import is_blank
from tasks.answers import check_summary
from tasks.extract import extract
from tasks.prompt import target_tokens
from tests.support.snapshots import snapshot


def batch(*contents: str, **values: object) -> list[SummaryNode]:
    return [
        snapshot("s", number, content=content, token_count=estimate_tokens(content), **values)
        for number, content in enumerate(contents)
    ]


FILLER = "It was fine. They agreed that it was fine. The weather stayed fine. They said so again. " * 3
LONG = [
    f"They talked for a while. On 3 May Alice chose Postgres 15 over MySQL because of partial indexes. {FILLER}",
    f"They said hello. Bob moved the launch from 12 June to 19 June 2026 since ticket OPS-4411 was open. {FILLER}",
] * 3


def test_the_telling_sentences_are_kept_in_order_with_dates() -> None:
    text = extract(batch(*LONG), 2048)
    assert "Alice chose Postgres 15 over MySQL because of partial indexes." in text
    assert "ticket OPS-4411" in text
    lines = text.splitlines()
    assert [line[:11] for line in lines] == [f"2026-03-0{n}:" for n in range(1, 7)]
    assert estimate_tokens(text) <= target_tokens(batch(*LONG), 2048)


def test_the_same_batch_gives_the_same_text() -> None:
    assert extract(batch(*LONG), 2048) == extract(batch(*LONG), 2048)


def test_the_limit_is_kept_and_every_snapshot_heard() -> None:
    nodes = batch(*(f"Word{n} " * 300 + "." for n in range(20)))
    text = extract(nodes, 300)
    assert estimate_tokens(text) <= 300
    assert all(f"Word{n} " in text + " " for n in range(20))


def test_a_sentence_that_is_too_long_is_cut_at_a_word() -> None:
    text = extract(batch(*["unbroken " * 400] * 5), 2048)
    assert "unbroken…" in text
    assert "unbroke…" not in text


def test_text_without_spaces_is_cut_too() -> None:
    nodes = batch(*["记忆工作者在后台运行" * 60] * 5)
    text = extract(nodes, 2048)
    check_summary(text, nodes, 2048)


@pytest.mark.parametrize("words", [1, 10])
def test_snapshots_of_a_few_words_fold_too(words: int) -> None:
    nodes = batch(*["ten words "[: words * 5] * words] * 5)
    check_summary(extract(nodes, 2048), nodes, 2048)


def test_snapshots_without_times_are_named_by_their_messages() -> None:
    text = extract(batch(*LONG, started_at=None, ended_at=None), 2048)
    assert text.startswith("messages 1 to 10: ")


def test_dates_are_those_of_utc_wherever_the_node_was_read() -> None:
    east = datetime(2026, 1, 2, 8, 30, tzinfo=timezone(timedelta(hours=9)))
    assert extract(batch(*LONG, started_at=east, ended_at=east), 2048).startswith("2026-01-01: ")


def test_many_tiny_snapshots_fold_too() -> None:
    nodes = batch(*(f"Item {n}: done, as agreed with Ada." for n in range(200)))
    check_summary(extract(nodes, 2048), nodes, 2048)


visible = st.text(min_size=1, max_size=400).filter(lambda text: not is_blank(text))


@settings(max_examples=300, deadline=None)
@given(st.lists(visible, min_size=2, max_size=20))
def test_whatever_the_text_an_extract_may_be_stored(contents: list[str]) -> None:
    from models import clean_text

    nodes = [n for n in batch(*map(clean_text, contents)) if not is_blank(n.content)]
    if len(nodes) > 1:
        check_summary(extract(nodes, 2048), nodes, 2048)
