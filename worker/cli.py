"""The ``mneme`` command. Heavy imports stand where they are used, so that it starts at once."""

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from worker.commands.backfill import backfill
from worker.commands.config import config
from worker.commands.demo import demo
from worker.commands.doctor import doctor
from worker.commands.enqueueing import enqueue, sweep
from worker.commands.importing import import_file
from worker.commands.listing import runs, sessions
from worker.commands.memory import memory
from worker.commands.metrics import metrics
from worker.commands.repair import repair
from worker.commands.retry import retry
from worker.commands.show import show
from worker.commands.status import status
from worker.commands.steering import cancel, pause, resume
from worker.commands.tree import tree
from worker.commands.up import up
from worker.exits import INTERRUPTED, NEGATIVE, or_exit

if TYPE_CHECKING:
    from sqlalchemy import Engine


class _Command(click.Group):
    """Ends on Ctrl-C with the exit code that shells expect, and on output that cannot be written with one sentence."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. A standard input that was closed, as services do, is an empty one."""
        if sys.stdin is None:
            sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - to the end of the process
        return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("mneme: interrupted", err=True)
            raise SystemExit(INTERRUPTED) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            # What could not be written is still in the buffer, and would be tried again at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            click.echo(
                f"mneme: {error.filename or 'input or output'}: {error.strerror or type(error).__name__}", err=True
            )
            raise SystemExit(NEGATIVE) from None


@click.group(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mneme-worker", prog_name="mneme")
def main() -> None:
    """The memory worker behind long-running LLM agents.

    Settings come from config.toml and the environment; DATABASE_URL names the database. Exit codes: 0 success, 1 a
    negative answer, 2 wrong usage or configuration.
    """


for command in (
    backfill, cancel, config, demo, doctor, enqueue, import_file, memory, metrics, pause, repair, resume, retry, runs, sessions,
    show, status, sweep, tree, up,
):  # fmt: skip
    main.add_command(command)


@main.command(short_help="Bring the schema up to date.")
def migrate() -> None:
    """Bring the schema "mneme" in the database up to date. Safe to run again, and from several places at once.

    Examples:

      mneme migrate
    """
    from models.migrate import migrate as bring_up_to_date

    before, after = or_exit(lambda: bring_up_to_date(_engine()))
    click.echo(
        f"schema mneme: {after}, up to date" if before == after else f"schema mneme: {before or 'nothing'} -> {after}"
    )


@main.command(short_help="Let the role of a main app write and read.")
@click.argument("role")
def grant(role: str) -> None:
    """Let the database role ROLE of a main app write snapshots, append messages and read memory.

    Examples:

      mneme grant app
    """
    from models.migrate import grant as give_rights

    or_exit(lambda: give_rights(_engine(), role))
    click.echo(f"{role} may write snapshots, append messages and read memory")


def _engine() -> "Engine":
    from models.engine import make_engine
    from models.settings import get_settings

    return make_engine(get_settings().require_database_url(), pooled=False)
