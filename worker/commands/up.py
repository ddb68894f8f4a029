"""``mneme up``: everything on this machine, until Ctrl-C."""

import logging
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from worker.exits import NEGATIVE, or_exit

LOOK_EVERY_SECONDS = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """SIGTERM, SIGINT or SIGHUP came. No ``Exception``: nothing on the way may mistake it for a failure."""


@contextmanager
def signals_raise() -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP raise ``Stopped`` in the body; a second signal does not break the clean-up."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for name in _SIGNALS:
            signal.signal(name, signal.SIG_IGN)
        raise Stopped(number)

    # A signal may come in the middle of a statement. Then psycopg warns of the rollback, and the pool shows a stack before it
    # throws the connection away. Nobody is helped by that.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    before = {name: signal.signal(name, stop) for name in _SIGNALS}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@click.command(short_help="Start everything on this machine, for local use.")
@click.option(
    "--data",
    type=click.Path(file_okay=False),
    help="Keep data and logs here; without it they are temporary.",
)
@click.option("--tcp", is_flag=True, help="Let Postgres and Redis listen on 127.0.0.1 too, without a password.")
def up(data: str | None, tcp: bool) -> None:
    """Start Postgres, Redis, worker, beat and Flower on this machine, until Ctrl-C.

    For local use. Addresses in the environment (DATABASE_URL, REDIS_URL) are used instead of servers of its own. Without
    a model (MNEME_LLM__MODEL) the extract folds.

    Its servers are reached by unix sockets in the data directory, which are yours alone. For a client that knows none
    (Django's URL, Node's redis, Docker) there is --tcp.

    Examples:

      mneme up

      mneme up --data ./mneme-data --tcp
    """
    if data == "":
        raise click.UsageError("--data is empty: name a directory")
    or_exit(lambda: _up(None if data is None else Path(data), tcp))


def _up(data: Path | None, tcp: bool) -> None:
    from worker.embedded.directories import data_directory
    from worker.embedded.stack import Stack

    try:
        with signals_raise(), data_directory(data) as directory, Stack(directory, tell=click.echo, tcp=tcp) as stack:
            stack.wait_for_worker()
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
