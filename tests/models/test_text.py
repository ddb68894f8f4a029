import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from models import clean_text, estimate_tokens, is_blank

SAMPLES = {
    "english": "The team moved the database on 12 March because the old disk was nearly full.",
    "code": "def fold(batch: list[Node]) -> Node:\n    return Node(*batch)\n",
    "chinese": "团队讨论了三种方案，最后选择了逻辑复制。",
    "arabic": "قرر الفريق نقل قاعدة البيانات إلى خادم جديد.",
    "emoji": "🚀🔥👩‍💻🏳️‍🌈",
    "mixed": "Zoë: ошибка 42 → 修复 ✅",
    "empty": "",
}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
def test_python_and_postgres_estimate_the_same_tokens(engine: Engine, sample: str) -> None:
    with engine.connect() as connection:
        estimated = connection.execute(text("select mneme.estimate_tokens(:t)"), {"t": sample}).scalar_one()
    assert estimated == estimate_tokens(sample)


def test_every_character_counts_the_same_in_both(engine: Engine) -> None:
    everything = "".join(chr(c) for c in range(1, 0x110000, 7) if not 0xD800 <= c <= 0xDFFF)
    with engine.connect() as connection:
        estimated = connection.execute(text("select mneme.estimate_tokens(:t)"), {"t": everything}).scalar_one()
    assert estimated == estimate_tokens(everything)


def test_chinese_is_not_taken_for_a_quarter_of_its_tokens() -> None:
    chinese = SAMPLES["chinese"]
    assert estimate_tokens(chinese) > len(chinese) * 0.7


def test_python_and_postgres_agree_on_what_is_blank_for_every_character(engine: Engine) -> None:
    characters = [chr(c) for c in range(1, 0x10000) if not 0xD800 <= c <= 0xDFFF]
    with engine.connect() as connection:
        blank = set(
            connection.execute(
                text("select c from unnest(cast(:cs as text[])) as t(c) where mneme.is_blank(c)"), {"cs": characters}
            ).scalars()
        )
    assert blank == {c for c in characters if is_blank(c)}
    assert {c for c in characters if c.isspace()} <= blank


@given(st.text(alphabet=st.characters(codec=None)))
def test_cleaned_text_can_always_be_encoded_and_keeps_the_rest(dirty: str) -> None:
    cleaned = clean_text(dirty)
    cleaned.encode()
    assert "\0" not in cleaned
    assert clean_text(cleaned) == cleaned
    assert cleaned == "".join(c for c in dirty if c != "\0" and not 0xD800 <= ord(c) <= 0xDFFF)
