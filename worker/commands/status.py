"""``mneme status``: one screen that says whether memory is being folded, what is stuck, and the remedy."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from worker.commands.status_screen import Queue, render
from worker.exits import or_exit
from worker.terminal import encodable

if TYPE_CHECKING:
    from models.settings import Settings
    from models.status import Status


@click.command(short_help="What waits, runs, is stuck, and the remedies.")
@click.option("--json", "as_json", is_flag=True, help="Print one object; the keys are those of models.status.Status.")
def status(as_json: bool) -> None:
    """Show what waits to be folded, what runs, what is held back and by what, and what was given up.

    By the same rules as the workers. Below each problem stands what to do about it.

    Examples:

      mneme status

      mneme status --json | jq .waiting.due.sessions
    """
    found, settings = or_exit(_read)
    queue = or_exit(lambda: _read_queue(settings))
    if as_json:
        click.echo(json.dumps({**asdict(found), "queue": asdict(queue)}))
        return
    for line in render(found, settings, queue):
        click.echo(encodable(line))


def _read_queue(settings: "Settings") -> Queue:
    from models.errors import BrokerError
    from tasks.broker import queue_length

    if settings.broker.url is None:
        return Queue(error="broker.url is not set here")
    try:
        return Queue(queue_length(settings))
    except BrokerError as error:
        return Queue(error=str(error))


def _read() -> "tuple[Status, Settings]":
    from models.breaker import server_of
    from models.engine import transaction
    from models.settings import get_settings
    from models.status import read_status
    from worker.commands.database import one_connection

    settings = get_settings()
    engine = one_connection().execution_options(isolation_level="REPEATABLE READ")
    with transaction(engine, statement_seconds=60) as connection:
        return read_status(connection, settings.mneme, server_of(settings), settings.spend), settings
