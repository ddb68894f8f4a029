"""``mneme import``: snapshots from a file of JSON lines into the database."""

import io
import json
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import click

from worker.exits import INTERRUPTED, NEGATIVE, or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from models.importing import Imported

ENQUEUE_SECONDS = 10.0

# Beyond so many the sweep is left to find the rest, rather than to hold the ids of all in memory.
MOST_SESSIONS = 100_000


@dataclass
class _Sum:
    """What became of the file so far."""

    written: int = 0
    already_there: int = 0
    refused: int = 0
    enqueued: int = 0
    session_ids: set[str] = field(default_factory=set)

    def add(self, imported: "Imported") -> None:
        self.written += imported.written
        self.already_there += imported.already_there
        self.refused += len(imported.refused)
        if len(self.session_ids) < MOST_SESSIONS:
            self.session_ids |= imported.session_ids

    def counts(self) -> dict[str, int]:
        return {"written": self.written, "already_there": self.already_there, "refused": self.refused}

    def __str__(self) -> str:
        return f"{self.written:,} written, {self.already_there:,} already there, {self.refused:,} refused"


@click.command("import", short_help="Write snapshots from a file of JSON lines.")
@click.argument("file", metavar="FILE.jsonl", type=click.File("rb"))
@click.option("--json", "as_json", is_flag=True, help="Print one object: written, already_there, refused, enqueued.")
def import_file(file: BinaryIO, as_json: bool) -> None:
    """Write the Level 1 snapshots of FILE.jsonl (- for standard input), one object of JSON a line.

    Keys: session_id, span_start, span_end, content; if known, started_at and ended_at (ISO 8601 with a zone) and
    token_count. What is already there is left as it is, so an import that was interrupted continues when it is run again.
    Lines that cannot be imported are named on standard error, the others are imported, and the exit code is 1.

    Examples:

      mneme import snapshots.jsonl

      zcat snapshots.jsonl.gz | mneme import -
    """
    total = _Sum()
    try:
        or_exit(lambda: _import(file, total))
        or_exit(lambda: _enqueue(total))
    except KeyboardInterrupt:
        _say(f"mneme: interrupted: {total}; running it again continues")
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:
        _say(f"mneme: the file cannot be read further ({error.strerror or type(error).__name__}): {total}")
        raise SystemExit(NEGATIVE) from None
    click.echo(json.dumps({**total.counts(), "enqueued": total.enqueued}) if as_json else str(total))
    if total.refused:
        raise SystemExit(NEGATIVE)


def _import(file: BinaryIO, total: _Sum) -> None:
    from models.errors import StorageError
    from models.importing import import_snapshots
    from worker.commands.database import one_connection

    batches = import_snapshots(one_connection(), file)
    size = _size(file)
    shown = size is not None and sys.stderr.isatty()
    try:
        if not shown:
            for imported in batches:
                _take(imported, total, _say)
            return
        with click.progressbar(batches, length=size, label="importing", file=sys.stderr, width=24) as bar:
            for imported in batches:
                # The bar's line is cleared for each report; with the next update it stands below.
                _take(imported, total, lambda line: _say(f"\r\x1b[K{line}"))
                bar.update(imported.size)
    except StorageError as error:
        raise type(error)(f"{error}; {total}; running it again continues") from None


def _take(imported: "Imported", total: _Sum, say: Callable[[str], None]) -> None:
    total.add(imported)
    for refused in imported.refused:
        say(f"line {refused.line}: {visible(refused.reason)}")


def _size(file: BinaryIO) -> int | None:
    """Return how many bytes are to be read, or None for a pipe or a terminal, of which nobody knows."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, io.UnsupportedOperation):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _enqueue(total: _Sum) -> None:
    """Tell the workers, if there is a broker, in a bounded time; what they are not told the sweep finds."""
    from models.settings import get_settings

    if not total.session_ids:
        return
    if get_settings().broker.url is None:
        _say("mneme: no broker is set (REDIS_URL): the sweep of a running beat will find what is due")
        return
    from tasks.broker import publish_many

    total.enqueued = publish_many(get_settings(), total.session_ids, seconds=ENQUEUE_SECONDS)
    if total.enqueued < len(total.session_ids):
        missed = f"{len(total.session_ids) - total.enqueued:,} of {len(total.session_ids):,}"
        _say(f"mneme: {missed} sessions not enqueued: the sweep will find what is due")


def _say(line: str) -> None:
    click.echo(encodable(line, sys.stderr), err=True)
