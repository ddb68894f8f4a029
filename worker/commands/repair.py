"""``mneme repair``: extracts that stand in place of a model's answer are redone now."""

import json
from typing import TYPE_CHECKING

import click

from worker.exits import NEGATIVE, or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from models.repairs import Degraded
    from tasks.repair import Outcome, RepairReport, Told


@click.command(short_help="Redo extracts in place of a model's answer.")
@click.argument("session_id", metavar="[SESSION]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one object: redone, stopped, and other outcomes.")
def repair(session_id: str | None, as_json: bool) -> None:
    """Ask the model again for every fold, of SESSION or of all, that holds an extract because no answer was usable.

    A sound answer takes the extract's place; the extract is kept, out of memory. Not bounded by
    schedules.repair_tokens_per_day, as the periodic repair is. Safe to interrupt. Exit code 1 when some could not be redone.

    Examples:

      mneme repair

      mneme repair chat-42
    """

    def told(degraded: "Degraded", outcome: "Outcome") -> None:
        if not as_json:
            click.echo(encodable(f"node {degraded.id} of session {visible(degraded.session_id)}: {outcome}"))

    report = or_exit(lambda: _repair(session_id, told))
    if report is None:
        click.echo(encodable(f"mneme: there is no session {session_id!r}"), err=True)
        raise SystemExit(NEGATIVE)
    if as_json:
        click.echo(json.dumps(report.as_result()))
    else:
        others = "".join(f", {count} {outcome}" for outcome, count in sorted(report.others.items()))
        click.echo(f"{report.redone} extracts redone{others}")
        if report.stopped:
            click.echo(encodable(f"stopped: {report.stopped}"))
    if report.stopped or report.others:
        raise SystemExit(NEGATIVE)


def _repair(session_id: str | None, told: "Told") -> "RepairReport | None":
    from models.checks import check_session_id
    from models.engine import transaction
    from models.settings import get_settings
    from models.tree import session_exists
    from tasks.repair import redo_all
    from worker.commands.database import one_connection

    settings = get_settings()
    settings.require_model()
    engine = one_connection()
    if session_id is not None:
        check_session_id(session_id)
        with transaction(engine) as connection:
            if not session_exists(connection, session_id):
                return None
    return redo_all(settings, engine, session_id, every=True, told=told)
