"""What may reach a terminal: no control character, escape sequence or mark that turns the direction of the line."""

import shlex
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import TextIO


def visible(text: str, *, keep: str = "") -> str:
    """Return the text with every character that is not to be seen written as an escape, such as ``\\x1b``.

    Args:
        text: what somebody else wrote.
        keep: characters to leave as they are, such as a line break.
    """
    return "".join(
        character
        if character in keep or character.isprintable() or unicodedata.category(character) == "Zs"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def typed(text: str) -> str:
    """Return a session's id as it can be typed into a shell (bash, zsh) behind a command; a plain one is itself."""
    shown = visible(text)
    if shown == text and "\\" not in text:
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(character: str) -> str:
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
    if found and program.exists() and Path(found).samefile(program):
        return program.name
    try:
        return str(program.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(program)
