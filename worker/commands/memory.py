"""``mneme memory``: what an agent should carry in its context, as an agent would get it."""

import json
import sys

import click

from worker.exits import NEGATIVE, or_exit
from worker.terminal import encodable, visible


@click.command(short_help="What an agent should carry of a session.")
@click.argument("session_id", metavar="SESSION")
@click.option(
    "--budget", "token_budget", metavar="N", required=True, type=click.IntRange(0, 2**31 - 1),
    help="The size of the agent's context, in tokens.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one object: session_id, token_budget, memory.")
def memory(session_id: str, token_budget: int, as_json: bool) -> None:
    """Print what an agent with a context of N tokens should carry of SESSION.

    Long-term memory gets mneme.l2_budget_fraction (0.05) of the N tokens, recent memory mneme.l1_budget_fraction (0.15); each
    holds at least its newest node, even where that alone takes more. On a terminal,
    control characters in the text are shown as escapes; into a file or a pipe it goes as it is.

    Examples:

      mneme memory chat-42 --budget 100000
    """
    told = or_exit(lambda: _read(session_id, token_budget))
    if told is None:
        click.echo(f"mneme: there is no session {session_id!r}", err=True)
        raise SystemExit(NEGATIVE)
    if as_json:
        click.echo(json.dumps({"session_id": session_id, "token_budget": token_budget, "memory": told}))
    elif sys.stdout.isatty():
        click.echo(encodable(visible(told, keep="\n")))
    else:
        click.echo(told.encode())


def _read(session_id: str, token_budget: int) -> str | None:
    from models.checks import check_session_id
    from models.engine import transaction
    from models.memory import memory as read_memory
    from models.settings import get_settings
    from models.tree import session_exists
    from worker.commands.database import one_connection

    check_session_id(session_id)
    with transaction(one_connection()) as connection:
        told = read_memory(connection, session_id, token_budget, get_settings().mneme)
        return told if told or session_exists(connection, session_id) else None
