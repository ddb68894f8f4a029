"""The estimate of tokens beside the counts of a real tokenizer."""

from collections.abc import Callable

import pytest

from benchmarks.tokens import TEXTS, real_counter
from models import estimate_tokens


@pytest.fixture(scope="module")
def count() -> Callable[[str], int]:
    return real_counter()


@pytest.mark.parametrize("kind", TEXTS)
def test_an_estimate_is_right_within_a_third(kind: str, count: Callable[[str], int]) -> None:
    for text in TEXTS[kind]:
        assert 2 / 3 <= estimate_tokens(text) / count(text) <= 4 / 3, text[:30]


def test_what_logs_and_json_hold_is_not_taken_for_prose(count: Callable[[str], int]) -> None:
    """Paths, ids and numbers have three times as many tokens as words of the same length."""
    for text in (
        "2026-03-01T09:14:22.113Z ERROR [worker-7] run 3f2a9c1e-07e4-4d5a-91b0-c7d2aa318f01 failed: timeout (3/5)",
        '{"id": "3f2a9c1e-07e4", "items": [{"name": "alpha", "price": 12.5, "tags": ["x", "y"]}], "ok": true}',
    ):
        assert 0.55 <= estimate_tokens(text) / count(text) <= 4 / 3
        assert len(text) / 4 / count(text) < 0.55


def test_the_check_can_fail(count: Callable[[str], int]) -> None:
    """FAILURES 37: characters divided by four is what others do."""
    wrong = {kind for kind, texts in TEXTS.items() if any(len(text) / 4 / count(text) < 2 / 3 for text in texts)}
    assert wrong == {"Chinese", "Japanese", "emoji"}
