"""``mneme sessions`` and ``mneme runs``: lists for those who look after the service."""

import json
from typing import TYPE_CHECKING, Any

import click

from worker.exits import NEGATIVE, or_exit
from worker.tables import table, time_of
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from models.listing import ListedRun, ListedSession

_LIMIT = click.option(
    "--limit", "most", metavar="N", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many."
)  # fmt: skip


@click.command(short_help="Sessions, those that need attention first.")
@_LIMIT
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects; the keys are those of ListedSession.")
def sessions(most: int, as_json: bool) -> None:
    """List sessions, those that need attention first: given up, failing, waiting for longest; then the newest.

    Examples:

      mneme sessions

      mneme sessions --limit 1000 --json | jq '.[] | select(.given_up > 0) | .session_id'
    """
    found = or_exit(lambda: _sessions(most))
    if as_json:
        click.echo(json.dumps([_plain(each) for each in found]))
        return
    if not found:
        click.echo("there is no session")
        return
    names = ("session", "state", "waiting", "for", "attempt", "given up", "degraded", "written", "error")
    for line in table(names, [_session(each) for each in found]):
        click.echo(encodable(line))


@click.command(short_help="Attempts to fold, the newest first.")
@click.argument("session_id", metavar="[SESSION]", required=False)
@_LIMIT
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects; the keys are those of ListedRun.")
def runs(session_id: str | None, most: int, as_json: bool) -> None:
    """List attempts to fold, of SESSION or of all: those under way, then those that ended last.

    Examples:

      mneme runs

      mneme runs chat-42 --limit 5
    """
    found = or_exit(lambda: _runs(session_id, most))
    if found is None:
        click.echo(encodable(f"mneme: there is no session {session_id!r}"), err=True)
        raise SystemExit(NEGATIVE)
    if as_json:
        click.echo(json.dumps([_plain(each) for each in found]))
        return
    if not found:
        click.echo("nothing was folded yet")
        return
    names = ("started (UTC)", "session", "level", "state", "attempt", "nodes", "took", "calls", "tokens", "node", "why")
    for line in table(names, [_run(each) for each in found]):
        click.echo(encodable(line))


def _sessions(most: int) -> "list[ListedSession]":
    from models.breaker import server_of
    from models.engine import transaction
    from models.listing import list_sessions
    from models.settings import get_settings
    from worker.commands.database import one_connection

    settings = get_settings()
    with transaction(one_connection(), statement_seconds=60) as connection:
        return list_sessions(connection, settings.mneme, server_of(settings), settings.spend, most)


def _runs(session_id: str | None, most: int) -> "list[ListedRun] | None":
    from models.checks import check_session_id
    from models.engine import transaction
    from models.listing import list_runs
    from models.tree import session_exists
    from worker.commands.database import one_connection

    if session_id is not None:
        check_session_id(session_id)
    with transaction(one_connection()) as connection:
        if session_id is not None and not session_exists(connection, session_id):
            return None
        return list_runs(connection, session_id, most)


def _session(found: "ListedSession") -> tuple[str, ...]:
    return (
        visible(found.session_id),
        "paused" if found.paused else found.state.replace("_", " "),
        str(found.waiting or ""),
        "" if found.due_seconds is None else time_of(found.due_seconds),
        str(found.attempt or ""),
        str(found.given_up or ""),
        str(found.degraded or ""),
        "" if found.written_at is None else _moment(found.written_at),
        _why(found.error_kind, found.error),
    )


def _run(found: "ListedRun") -> tuple[str, ...]:
    tokens = found.prompt_tokens + found.completion_tokens
    retry = "" if found.retry_seconds is None else f"again in {time_of(found.retry_seconds)}"
    return (
        _moment(found.started_at),
        visible(found.session_id),
        str(found.level),
        f"{found.state}, a repair" if found.repairs else found.state,
        str(found.attempt),
        str(found.nodes or ""),
        f"{found.seconds:.1f} s",
        str(found.llm_calls or ""),
        f"{tokens:,}" if tokens else "",
        str(found.node_id or "")[:8],
        "; ".join(filter(None, (_why(found.error_kind, found.error), retry))),
    )


def _why(kind: str | None, error: str | None) -> str:
    return "" if kind is None and error is None else f"{kind or 'error'}: {visible(error or '')}".removesuffix(": ")


def _moment(moment: Any) -> str:
    from datetime import UTC

    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _plain(found: Any) -> dict[str, object]:
    from dataclasses import asdict
    from datetime import UTC, datetime
    from uuid import UUID

    def plain(value: object) -> object:
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat()
        return str(value) if isinstance(value, UUID) else value

    return {name: plain(value) for name, value in asdict(found).items()}
