"""What may reach a terminal, whatever somebody wrote."""

import io
import subprocess
import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st

from worker.terminal import encodable, opening_words, typed, visible


@given(st.text(st.characters()))
def test_nothing_unseen_is_left_and_nothing_seen_is_lost(text: str) -> None:
    shown = visible(text)
    assert all(c.isprintable() or unicodedata.category(c) == "Zs" for c in shown)
    assert [c for c in text if c.isprintable()] == [c for c in text if c in shown and c.isprintable()]


@given(st.text(st.characters(), max_size=300), st.integers(10, 80))
def test_opening_words_are_one_short_line(text: str, most: int) -> None:
    words = opening_words(text, most)
    assert len(words) <= most
    assert words.isprintable() or any(unicodedata.category(c) == "Zs" for c in words)


def test_visible() -> None:
    assert visible("a\x1b[0mb\u202e\n") == "a\\x1b[0mb\\u202e\\n"
    assert visible("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert visible("日本　語 שלום 🙂") == "日本　語 שלום 🙂"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
@example("a\u200bb")
@example("\x1b")
@example("\\x1b")
@example("it's \x85 $HOME `id` \n")
@settings(max_examples=60)
def test_a_name_can_be_typed_as_it_is_shown(text: str) -> None:
    shown = typed(text)
    assert visible(shown) == shown
    read = subprocess.run(["bash", "-c", f"printf %s {shown}"], capture_output=True, env={"LC_ALL": "C.UTF-8"})
    assert read.stdout.decode() == text
    assert typed("chat-42") == "chat-42"


def test_opening_words() -> None:
    assert opening_words("  one\r\n two\tthree ") == "one two three"
    assert opening_words("word " * 50, 20) == "word word word..."
    assert opening_words("x" * 100, 20) == "x" * 17 + "..."


def test_encodable() -> None:
    assert encodable("Größe 日", io.TextIOWrapper(io.BytesIO(), encoding="latin-1")) == "Größe \\u65e5"
