"""What may reach a terminal, whatever somebody wrote."""

import io
import subprocess
import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st

from worker.terminal import encodable, opening_words, typed, visible

# Python holds these to be printable.
DRAWN_AS_NOTHING = {
    chr(code)
    for first, last in [(0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
                        (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF)]
    for code in range(first, last + 1)
}  # fmt: skip


@given(st.text(st.characters() | st.sampled_from(sorted(DRAWN_AS_NOTHING))))
@example("".join(sorted(DRAWN_AS_NOTHING)))
def test_nothing_unseen_is_left_and_nothing_seen_is_lost(text: str) -> None:
    shown = visible(text)
    assert all(c.isprintable() or unicodedata.category(c) == "Zs" for c in shown)
    unseen = set("".join(text)) - set(shown)
    assert all(c.encode("unicode_escape").decode() in shown for c in unseen)
    assert not {c for c in unseen if c.isprintable()} - DRAWN_AS_NOTHING


@given(st.text(st.characters(), max_size=300), st.integers(10, 80))
def test_opening_words_are_one_short_line(text: str, most: int) -> None:
    words = opening_words(text, most)
    assert len(words) <= most
    assert words.isprintable() or any(unicodedata.category(c) == "Zs" for c in words)


def test_visible() -> None:
    assert visible("a\x1b[0mb\u202e\n") == "a\\x1b[0mb\\u202e\\n"
    assert visible("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert visible("日本　語 שלום 🙂") == "日本　語 שלום 🙂"
    assert visible("❤\ufe0f 1\ufe0f\u20e3") == "❤\ufe0f 1\ufe0f\u20e3"
    assert visible("chat\ufe0f 1\ufe0f 日\u3164") == "chat\\ufe0f 1\\ufe0f 日\\u3164"


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
