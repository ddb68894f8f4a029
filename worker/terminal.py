"""What may reach a terminal: no control character, escape sequence, mark that turns the direction of the line, or character
that is drawn as nothing."""

import re
import shlex
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import TextIO

# Printable to Python, and drawn as nothing: a joiner of graphemes, fillers, vowels and selectors that are never seen, an
# empty Braille cell. A selector behind a sign, as in most emoji, and in a keycap, is what makes it look as it does.
_DRAWN_AS_NOTHING = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
    "|[\ufe00-\ufe0d]|(?<![\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff#*0-9])[\ufe0e\ufe0f]"
    "|(?<=[#*0-9])[\ufe0e\ufe0f](?!\u20e3)"
)


def visible(text: str, *, keep: str = "") -> str:
    """Return the text with every character that is not to be seen written as an escape, such as ``\\x1b``.

    Args:
        text: what somebody else wrote.
        keep: characters to leave as they are, such as a line break.
    """
    shown = _DRAWN_AS_NOTHING.sub(lambda match: _escape(match[0]), text)
    return "".join(
        character
        if character in keep or character.isprintable() or unicodedata.category(character) == "Zs"
        else _escape(character)
        for character in shown
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def typed(text: str) -> str:
    """Return a session's id as it can be typed into a shell (bash, zsh) behind a command; a plain one is itself."""
    shown = visible(text)
    if shown == text and "\\" not in text:
        return shlex.quote(text)
    return f"$'{''.join(map(_quoted, text))}'"


def _quoted(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    # To a shell \x85 is a byte, and to Python a character.
    shown = visible(character)
    return f"\\u{ord(character):04x}" if "\x80" <= character < "\u0100" and shown != character else shown


def opening_words(text: str, most_characters: int = 60) -> str:
    """Return the first words of a text on one line, with an ellipsis where more follows."""
    words = visible(" ".join(text.split()))
    if len(words) <= most_characters:
        return words
    return words[: most_characters - 3].rsplit(" ", 1)[0].rstrip() + "..."


def encodable(text: str, stream: TextIO | None = None) -> str:
    """Return the text with what the stream's encoding lacks written as escapes, so that printing it cannot fail."""
    encoding = (stream or sys.stdout).encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def program_name() -> str:
    """Return what to type to run this program: its name where the shell finds it, else its path from here."""
    program = Path(sys.argv[0])
    found = shutil.which(program.name)
    try:
        if found and Path(found).samefile(program):
            return program.name
        return str(program.absolute().relative_to(Path.cwd()))
    except (OSError, ValueError):  # nothing there, or no such way; the directory we are in may be gone
        return str(program)
