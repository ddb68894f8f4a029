"""``mneme pause``, ``resume`` and ``cancel``: what may be folded, decided by hand, and obeyed by every worker."""

import json
from typing import TYPE_CHECKING, NoReturn

import click

from worker.commands.publishing import IN_THE_WAY, holding, publish_or_leave
from worker.exits import NEGATIVE, or_exit
from worker.terminal import encodable, typed, visible

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from models.steering import Cancelled

_NAMED = 10


@click.command(short_help="Let nothing be folded, of a session or of all.")
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option("--all", "every", is_flag=True, help="Every session, those that do not exist yet included.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: session_id (null: all), paused.")
def pause(session_id: str | None, every: bool, as_json: bool) -> None:
    """Let no fold of SESSION begin, or with --all none at all, until it is resumed.

    Every worker obeys at its next claim; a fold that is running ends as usual (to stop that too: mneme cancel). Snapshots
    are written as before, and wait.

    Examples:

      mneme pause chat-42

      mneme pause --all
    """
    _one_or_all(session_id, every)
    if not or_exit(lambda: _pause(session_id)):
        _no_such_session(session_id)
    if as_json:
        click.echo(json.dumps({"session_id": session_id, "paused": True}))
        return
    what = "everything is" if session_id is None else f"session {visible(session_id)} is"
    click.echo(
        encodable(f"{what} paused; to go on: mneme resume {'--all' if session_id is None else typed(session_id)}")
    )


@click.command(short_help="Take a pause back.")
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option("--all", "every", is_flag=True, help="Take back `pause --all`; sessions paused by themselves stay so.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: session_id (null: all), paused, told.")
def resume(session_id: str | None, every: bool, as_json: bool) -> None:
    """Let SESSION be folded again, or with --all everything, and enqueue what is due.

    Examples:

      mneme resume chat-42

      mneme resume --all
    """
    _one_or_all(session_id, every)
    told = or_exit(_resume_all if session_id is None else lambda: _resume_one(session_id))
    if told is None:
        _no_such_session(session_id)
    if as_json:
        click.echo(json.dumps({"session_id": session_id, "paused": False, "told": told}))
        return
    for line in told:
        click.echo(encodable(line))


@click.command(short_help="Take a running fold away from its worker.")
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="Print one object: session_id, cancelled.")
def cancel(session_id: str, as_json: bool) -> None:
    """Take the running fold of SESSION away from its worker, and pause the session.

    The worker's call of the model goes on until it is answered; what it then wants to write is refused. The snapshots stay
    as they are. To go on: mneme resume SESSION.

    Examples:

      mneme cancel chat-42
    """
    cancelled = or_exit(lambda: _cancel(session_id))
    if cancelled is None:
        _no_such_session(session_id)
    if as_json:
        runs = [{"run_id": str(run.run_id), "level": run.level, "worker": run.worker} for run in cancelled]
        click.echo(json.dumps({"session_id": session_id, "cancelled": runs}))
        return
    for run in cancelled:
        click.echo(
            encodable(f"run {run.run_id} of {visible(run.worker or 'a worker without a name')} writes nothing any more")
        )
    if not cancelled:
        click.echo("nothing was running")
    click.echo(encodable(f"session {visible(session_id)} is paused; to go on: mneme resume {typed(session_id)}"))


def _one_or_all(session_id: str | None, every: bool) -> None:
    if (session_id is None) != every:
        raise click.UsageError("name a SESSION, or give --all")


def _no_such_session(session_id: str | None) -> NoReturn:
    click.echo(encodable(f"mneme: there is no session {session_id!r}"), err=True)
    raise SystemExit(NEGATIVE)


def _engine(session_id: str | None) -> "Engine":
    from models.checks import check_session_id
    from worker.commands.database import one_connection

    if session_id is not None:
        check_session_id(session_id)
    return one_connection()


def _pause(session_id: str | None) -> bool:
    from models import steering
    from models.engine import in_transaction

    engine = _engine(session_id)
    if session_id is not None:
        return in_transaction(engine, lambda connection: steering.pause(connection, session_id))
    in_transaction(engine, steering.pause_all)
    return True


def _resume_one(session_id: str) -> list[str] | None:
    from models import runs, steering
    from models.engine import in_transaction
    from models.settings import get_settings

    engine = _engine(session_id)
    was_paused = in_transaction(engine, lambda connection: steering.resume(connection, session_id))
    if was_paused is None:
        return None
    told = [f"session {visible(session_id)} {'is resumed' if was_paused else 'was not paused'}"]
    counted = in_transaction(engine, lambda connection: runs.count(connection, session_id, get_settings().mneme))
    if counted.due:
        enqueued = publish_or_leave(engine, [session_id])
        told.append("it is due, and enqueued" if enqueued else "it is due, and the sweep will find it")
        told += [f"but {IN_THE_WAY[hold]}" for hold in holding(engine, [counted]).values()]
    return told


def _resume_all() -> list[str]:
    from models import steering
    from models.engine import in_transaction

    engine = _engine(None)
    was_paused = in_transaction(engine, steering.resume_all)
    left = in_transaction(engine, lambda connection: steering.paused_sessions(connection, _NAMED + 1))
    told = ["everything is resumed; the sweep finds what is due" if was_paused else "not everything was paused"]
    if left:
        names = ", ".join(typed(session_id) for session_id in left[:_NAMED])
        told.append(f"paused by themselves: {names}{' and more' if len(left) > _NAMED else ''}")
    return told


def _cancel(session_id: str) -> "list[Cancelled] | None":
    from models import steering
    from models.engine import in_transaction

    return in_transaction(_engine(session_id), lambda connection: steering.cancel(connection, session_id))
