"""Text as it may be stored: cleaned, measured and judged the same way in Python and in Postgres.

Each function here has a twin of the same name in the schema ``mneme`` (see ``migrations/versions/``);
``tests/models/test_text.py`` compares them on many scripts.
"""

import re

MAX_CONTENT_BYTES = 32_768
MAX_SESSION_ID_BYTES = 255

CANNOT_SHRINK_TOKENS = 200
"""Inputs of a fold of fewer tokens than this cannot be made smaller, and may become as large as this."""

# Listed one by one, because what [[:space:]] matches in Postgres depends on the locale of the database.
# White space of Unicode, and what is invisible without being white space: soft hyphen, zero-width and directional marks,
# fillers, variation selectors, tags, the empty Braille pattern.
_BLANK = (
    "\t\n\v\f\r\x1c-\x20\x85\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f"
)
_BLANK += "\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"
_VISIBLE = re.compile(f"[^{_BLANK}]")
_MARKS = bytes(byte for byte in range(0x21, 0x7F) if not chr(byte).isalpha())
_FIRST_OF_THREE = bytes(range(0xE0, 0xF0))
_FIRST_OF_FOUR = bytes(range(0xF0, 0xF5))
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return the text without what Postgres cannot hold and no reader can see: NUL and lone surrogates."""
    return _UNSTORABLE.sub("", text)


def is_blank(text: str) -> bool:
    """Say whether nothing in the text can be seen."""
    return _VISIBLE.search(text) is None


def byte_length(text: str) -> int:
    """Return the length in bytes of UTF-8; the text must be clean."""
    return len(text.encode())


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a model's tokenizer makes of a (clean) text.

    By kinds of characters, which are cheap to count here and in Postgres: a letter or white space of ASCII counts 0.2, a digit
    or another mark 0.65, a character of two bytes (Latin beyond ASCII, Cyrillic, Arabic) 0.36, of three (Chinese, Japanese)
    0.78, of four (emoji) 2.8. Fitted to the tokenizers of two families of models of 2024; for what it is worth on which
    kind of text see ``benchmarks/tokens.py``. Characters divided by four, the usual rule, makes a third of the truth of
    Chinese text.
    """
    data = text.encode()
    characters = len(text)
    return (
        20 * characters
        + 45 * _count(data, _MARKS)
        + 16 * (len(data) - characters)
        + 26 * _count(data, _FIRST_OF_THREE)
        + 212 * _count(data, _FIRST_OF_FOUR)
        + 99
    ) // 100


def _count(data: bytes, those: bytes) -> int:
    return len(data) - len(data.translate(None, those))
