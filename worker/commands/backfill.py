"""``mneme backfill``: what is due now is folded in this process."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from worker.exits import INTERRUPTED, NEGATIVE, or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from models.settings import Settings
    from tasks.backfill import Progress

_TELL_EVERY_SECONDS = 10.0


@click.command(short_help="Fold what is due now, in this process.")
@click.argument("session_ids", metavar="[SESSION]...", nargs=-1)
@click.option(
    "--concurrency", default=4, show_default=True, type=click.IntRange(1, 1000), help="So many folds at once."
)
@click.option("--tokens", type=click.IntRange(1), help="Begin no fold once so many tokens were spent by this.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: sessions, of, folds, tokens, others, stopped.")
def backfill(session_ids: tuple[str, ...], concurrency: int, tokens: int | None, as_json: bool) -> None:
    """Fold everything that is due now, or the SESSIONs that are, in this process, without the queue.

    For history that was imported. Workers may run meanwhile: no fold is made twice. The caps on spending hold here too. Safe to
    interrupt and to run again: what runs is let go of, and nothing is half done. Exit code 1 when something that was due could
    not be folded.

    Examples:

      mneme backfill

      mneme backfill --concurrency 8 --tokens 500000

      mneme backfill chat-42 chat-43
    """
    from worker.lifecycle import let_go

    settings = or_exit(_settings)
    found = or_exit(lambda: _sessions(settings, session_ids))
    with _bar(len(found)) as told:
        try:
            progress = or_exit(lambda: _run(settings, found, concurrency, tokens, told, let_go))
        except KeyboardInterrupt:
            click.echo("\nmneme: interrupted: what ran was let go of; running it again continues", err=True)
            raise SystemExit(INTERRUPTED) from None
    if as_json:
        click.echo(json.dumps(progress.as_result()))
    else:
        for line in _lines(progress):
            click.echo(encodable(line))
    if progress.stopped or progress.others:
        raise SystemExit(NEGATIVE)


def _settings() -> "Settings":
    from models.settings import get_settings
    from worker.lifecycle import check_worker

    # What is logged of each fold is in the rows too; here it would tear the bar.
    logging.getLogger("mneme").setLevel(logging.ERROR)
    settings = get_settings()
    check_worker(settings)
    return settings


def _sessions(settings: "Settings", given: tuple[str, ...]) -> list[str]:
    from models.checks import check_session_id
    from models.engine import transaction
    from models.errors import InvalidNode
    from models.listing import due_sessions
    from models.tree import session_exists
    from worker.commands.database import one_connection

    with transaction(one_connection(), statement_seconds=60) as connection:
        if not given:
            return due_sessions(connection, settings.mneme)
        for session_id in given:
            if not session_exists(connection, check_session_id(session_id)):
                raise InvalidNode(f"there is no session {session_id!r}")
    return list(dict.fromkeys(given))


def _run(
    settings: "Settings", session_ids: list[str], at_once: int, tokens: int | None, told: "Callable[[Progress], None]",
    let_go: Callable[[], None],
) -> "Progress":  # fmt: skip
    from models.engine import make_engine
    from tasks.backfill import Backfill

    engine = make_engine(settings.require_database_url(), pool_size=at_once)
    return Backfill(settings, engine, session_ids, most_tokens=tokens, told=told).run(at_once, let_go=let_go)


@contextmanager
def _bar(total: int) -> "Iterator[Callable[[Progress], None]]":
    """Show a bar on a terminal, else a line every few seconds."""
    if sys.stderr.isatty():
        with click.progressbar(
            length=total, label="folding", file=sys.stderr, width=24, item_show_func=lambda x: x
        ) as bar:

            def update(progress: "Progress") -> None:
                bar.update(progress.sessions - bar.pos, f"{progress.folds:,} folds, {progress.tokens:,} tokens")

            yield update
        return
    last = time.monotonic()

    def tell(progress: "Progress") -> None:
        nonlocal last
        if time.monotonic() > last + _TELL_EVERY_SECONDS:
            last = time.monotonic()
            click.echo(_how_far(progress), err=True)

    yield tell


def _how_far(progress: "Progress") -> str:
    return f"{progress.sessions:,} of {progress.total:,} sessions, {progress.folds:,} folds, {progress.tokens:,} tokens"


_OTHERS = {
    "failed": "failed: mneme status names the errors; they are tried again by themselves",
    "already_running": "are being folded by a worker",
    "backing_off": "failed before, and are tried again by themselves; now: mneme retry",
    "paused": "are paused: mneme resume",
    "held": "are on hold: mneme status says by what",
    "lost_lease": "were taken over or cancelled meanwhile",
    "stopped": "were begun and not finished",
}


def _lines(progress: "Progress") -> Iterator[str]:
    yield _how_far(progress)
    for outcome, sessions in sorted(progress.others.items()):
        yield f"{sessions:,} {_OTHERS.get(outcome, outcome)}"
    if progress.stopped:
        yield f"stopped: {visible(progress.stopped)}"
