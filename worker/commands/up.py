"""``mneme up``: everything on this machine, until Ctrl-C."""

import logging
import shlex
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from worker.exits import NEGATIVE, or_exit

LOOK_EVERY_SECONDS = 0.5


class Stopped(BaseException):
    """SIGTERM or SIGINT came. No ``Exception``: nothing on the way may mistake it for a failure."""


@contextmanager
def signals_raise() -> Iterator[None]:
    """Have SIGINT and SIGTERM raise ``Stopped`` in the body; a second signal does not break the clean-up."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_IGN)
        raise Stopped(number)

    # A signal may come in the middle of a statement, of whose rollback psycopg then warns. Nobody is helped by that.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    before = {name: signal.signal(name, stop) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def data_directory(chosen: Path | None) -> Iterator[Path]:
    """Give the chosen directory, else a temporary one that is removed at the end."""
    if chosen is not None:
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="mneme-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@click.command(short_help="Start everything on this machine, for local use.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep data and logs here; without it they are temporary.",
)
@click.option("--tcp", is_flag=True, help="Let Postgres and Redis listen on 127.0.0.1 too, without a password.")
def up(data: Path | None, tcp: bool) -> None:
    """Start Postgres, Redis, worker, beat and Flower on this machine, until Ctrl-C.

    For local use. Addresses in the environment (DATABASE_URL, REDIS_URL) are used instead of servers of its own. Without
    a model (MNEME_LLM__MODEL) the extract folds.

    Its servers are reached by unix sockets in the data directory, which are yours alone. For a client that knows none
    (Django's URL, Node's redis, Docker) there is --tcp.

    Example: mneme up --data ~/.mneme

    Examples:

      mneme up

      mneme up --data ./mneme-data --tcp
    """
    or_exit(lambda: _up(data, tcp))


def _up(data: Path | None, tcp: bool) -> None:
    from worker.embedded.stack import Stack

    try:
        with signals_raise(), data_directory(data) as directory, Stack(directory, tell=click.echo, tcp=tcp) as stack:
            click.echo(f"data      {stack.data}{'' if data else ' (temporary)'}")
            click.echo("\nFor another shell:")
            for name, url in stack.addresses.items():
                click.echo(f"  export {name}={shlex.quote(url)}")
            click.echo("\nReady. Ctrl-C stops everything.")
            while (ended := stack.ended()) is None:
                time.sleep(LOOK_EVERY_SECONDS)
            click.echo(f"mneme: {ended.name} has ended, its log {ended.log} ends with:\n{ended.last_lines()}", err=True)
            raise SystemExit(NEGATIVE)
    except Stopped:
        click.echo("Stopped.")
