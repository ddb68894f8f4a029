"""``mneme retry``: what waits or was given up is tried again now."""

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from worker.commands.publishing import IN_THE_WAY, holding, publish_or_leave
from worker.exits import NEGATIVE, or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from models.retrying import Retried


@dataclass
class _Sum:
    """What came of it."""

    sessions: int = 0
    runs: int = 0
    nodes: int = 0
    enqueued: int = 0
    busy: int = 0
    breakers: int = 0
    held_back: str | None = None


@click.command(short_help="Try again now what waits or was given up.")
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option("--all", "every", is_flag=True, help="Every session that waits for a later attempt or was given up.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one object: sessions, runs, nodes, enqueued, busy, breakers, held_back.",
)
def retry(session_id: str | None, every: bool, as_json: bool) -> None:
    """Try SESSION again now, or --all: nothing waits for its retry_at, and what was dismissed is offered again.

    Dismissed as crashes, too_large or content; with SESSION also what the model declined. An open breaker lets the next
    call through at once. A paused session stays paused.

    Examples:

      mneme retry chat-42

      mneme retry --all
    """
    if (session_id is None) != every:
        raise click.UsageError("name a SESSION, or give --all")
    total = or_exit(lambda: _retry_all() if session_id is None else _retry_one(session_id))
    if total is None:
        click.echo(encodable(f"mneme: there is no session {session_id!r}"), err=True)
        raise SystemExit(NEGATIVE)
    if as_json:
        click.echo(json.dumps(total.__dict__))
        return
    who = "every session" if session_id is None else f"session {visible(session_id)}"
    click.echo(
        encodable(
            f"{who}: {total.runs} runs due now, {total.nodes} nodes offered again, {total.enqueued} of {total.sessions}"
            f" sessions enqueued{'' if total.enqueued == total.sessions else '; the sweep finds the others'}"
        )
    )
    if total.busy:
        click.echo(
            f"{total.busy} sessions were locked by somebody else and not changed in full: run it again for these"
        )
    if total.held_back:
        click.echo(f"but {IN_THE_WAY[total.held_back]}")
    if total.breakers:
        click.echo(f"{total.breakers} open breakers let the next call through")


def _retry_one(session_id: str) -> _Sum | None:
    from models.checks import check_session_id
    from models.engine import in_transaction, transaction
    from models.retrying import VERDICTS, probe_now, retry
    from models.runs import count
    from models.settings import get_settings
    from models.tree import session_exists
    from worker.commands.database import one_connection

    check_session_id(session_id)
    engine = one_connection()
    with transaction(engine) as connection:
        if not session_exists(connection, session_id):
            return None
    retried = in_transaction(engine, lambda connection: retry(connection, [session_id], VERDICTS))
    breakers = in_transaction(engine, probe_now)  # by itself: a claim locks the breaker before the run
    published = publish_or_leave(engine, [session_id])
    with transaction(engine) as connection:
        counted = count(connection, session_id, get_settings().mneme)
    holds = holding(engine, [counted])
    return _Sum(1, retried.runs, retried.nodes, published, retried.busy, breakers, holds.get(session_id))


def _retry_all() -> _Sum:
    """Go through the sessions in the order of their ids, a transaction for each few hundred."""
    from models.engine import in_transaction
    from models.retrying import FAILURES, probe_now, retry, sessions_to_retry
    from worker.commands.database import one_connection

    engine = one_connection()
    total = _Sum(breakers=in_transaction(engine, probe_now))

    def some(connection: "Connection", after: str) -> "tuple[list[str], Retried]":
        found = sessions_to_retry(connection, after)
        return found, retry(connection, found, FAILURES)

    after = ""
    while True:
        found, retried = in_transaction(engine, partial(some, after=after))
        if not found:
            return total
        after = found[-1]
        total.sessions += len(found)
        total.runs += retried.runs
        total.nodes += retried.nodes
        total.busy += retried.busy
        total.enqueued += publish_or_leave(engine, found)
