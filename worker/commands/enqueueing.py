"""``mneme enqueue`` and ``mneme sweep``: the hints that a worker gets, given by hand."""

import json
import logging
from typing import TYPE_CHECKING

import click

from worker.commands.publishing import IN_THE_WAY, PUBLISH_SECONDS, holding
from worker.exits import NEGATIVE, or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from models.runs import Count
    from tasks.sweep import SweepReport


@click.command(short_help="Put jobs onto the queue.")
@click.argument("session_ids", metavar="SESSION...", nargs=-1, required=True)
@click.option(
    "--json", "as_json", is_flag=True, help="Print a list of objects: session_id, enqueued, uncovered, due, held_back."
)
def enqueue(session_ids: tuple[str, ...], as_json: bool) -> None:
    """Put a job for each SESSION onto the queue, whether it is due or not: a worker counts for itself.

    Exit code 1 when the broker did not take them all, or a session does not exist.

    Examples:

      mneme enqueue chat-42 chat-43
    """
    counts, unknown, published, holds = or_exit(lambda: _enqueue(list(session_ids)))
    if as_json:
        told = [
            {"session_id": counted.session_id, "enqueued": position < published, "uncovered": counted.uncovered,
             "due": counted.due, "held_back": holds.get(counted.session_id)}
            for position, counted in enumerate(counts)
        ]  # fmt: skip
        click.echo(json.dumps(told))
    for position, counted in enumerate(counts if not as_json else ()):
        state = "due" if counted.due else "not due yet"
        state += f", but {IN_THE_WAY[holds[counted.session_id]]}" if counted.session_id in holds else ""
        sent = "enqueued" if position < published else "NOT enqueued: the broker took no more"
        click.echo(encodable(f"session {visible(counted.session_id)}: {sent}; {counted.uncovered} nodes wait, {state}"))
    for session_id in unknown:
        click.echo(encodable(f"mneme: there is no session {session_id!r}"), err=True)
    if unknown or published < len(counts):
        raise SystemExit(NEGATIVE)


@click.command(short_help="Find in the rows what is due, now.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: expired, enqueued, marked, unmarked.")
def sweep(as_json: bool) -> None:
    """Do now what beat has a worker do every schedules.sweep_seconds: close dead leases, and enqueue what is due.

    Harmless beside the sweep of the workers. Exit code 1 when the broker does not answer: then nothing is enqueued.

    Examples:

      mneme sweep
    """
    report = or_exit(_sweep)
    if as_json:
        click.echo(json.dumps(report.as_result()))
    else:
        click.echo(f"{report.enqueued} sessions enqueued, {report.expired} dead leases closed")
    or_exit(_ask_broker)


def _enqueue(session_ids: list[str]) -> "tuple[list[Count], list[str], int, dict[str, str]]":
    from models.checks import check_session_id
    from models.engine import transaction
    from models.runs import count_sessions
    from models.settings import get_settings
    from models.tree import session_exists
    from tasks.broker import publish_many
    from worker.commands.database import one_connection

    settings = get_settings()
    settings.require_broker_url()
    for session_id in session_ids:
        check_session_id(session_id)
    wanted = list(dict.fromkeys(session_ids))
    engine = one_connection()
    with transaction(engine) as connection:
        known = [session_id for session_id in wanted if session_exists(connection, session_id)]
        counted = {each.session_id: each for each in count_sessions(connection, known, settings.mneme)}
    found = [counted[session_id] for session_id in known]
    holds = holding(engine, found)
    published = publish_many(settings, known, seconds=PUBLISH_SECONDS)
    return found, [s for s in wanted if s not in known], published, holds


def _ask_broker() -> None:
    from models.settings import get_settings
    from tasks.broker import queue_length

    queue_length(get_settings())


def _sweep() -> "SweepReport":
    from models.settings import get_settings
    from tasks.sweep import sweep as do_sweep
    from worker.commands.database import one_connection

    settings = get_settings()
    settings.require_broker_url()
    # Of a broker that does not answer this command says so itself.
    logging.getLogger("mneme.sweep").setLevel(logging.ERROR)
    return do_sweep(settings, one_connection())
