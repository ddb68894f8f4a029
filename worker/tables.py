"""Tables of text: aligned columns, cut to the terminal's width where there is one."""

import shutil
import sys
from collections.abc import Iterator, Sequence

_BETWEEN = "  "


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table, the last column cut to fit a terminal, and whole into a file or a pipe.

    Args:
        names: of the columns; one that is empty in every row is left out.
        rows: as many texts each, safe for a terminal.
    """
    shown = [at for at in range(len(names)) if any(row[at] for row in rows)]
    widths = [max(len(names[at]), *(len(row[at]) for row in rows)) for at in shown]
    most = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in (names, *rows):
        line = _BETWEEN.join(f"{row[at]:<{width}}" for at, width in zip(shown, widths, strict=True)).rstrip()
        yield line if most is None or len(line) <= most else line[: most - 3] + "..."


def time_of(seconds: float) -> str:
    """Return a length of time in its largest unit of which there are two."""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
