"""``mneme demo``: from nothing to a folded memory."""

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from worker.commands.tree import render
from worker.commands.up import Stopped, signals_raise
from worker.exits import INTERRUPTED, or_exit
from worker.terminal import program_name

if TYPE_CHECKING:
    from models.tree import Tree

BUDGET_TOKENS = 48_000

_STARTED = time.monotonic()

NEXT = """\
Next:
  {mneme} up --data DIR     everything on this machine, to keep and to try your own app on
  README.md{pad}           use it from your app, from another language, run it for real
  MNEME_LLM__MODEL=... OPENAI_API_KEY=... {mneme} demo     the same by a model instead of the extract"""


@click.command(short_help="Fold a sample session before your eyes.")
def demo() -> None:
    """Fold a sample session before your eyes, on servers that are gone afterwards.

    Starts Postgres, Redis and a worker in a temporary directory, writes 32 snapshots of an agent's project, waits for
    the folds and shows what became of the session. No database of yours is touched. With a model and its key in the
    settings (MNEME_LLM__MODEL, OPENAI_API_KEY) that model folds, else the extract.

    Examples:

      mneme demo

      MNEME_LLM__MODEL=gpt-4.1-mini mneme demo
    """
    or_exit(_demo)


def _demo() -> None:
    from models.engine import make_engine, transaction
    from models.memory import memory
    from models.settings import load_settings
    from models.tree import read_tree
    from worker.demo import SESSION_ID, demo_environ, demo_snapshots, write_and_wait
    from worker.embedded.directories import data_directory
    from worker.embedded.stack import Stack

    snapshots = demo_snapshots()
    environ = demo_environ(os.environ)
    asked = load_settings(os.environ).llm.model
    if asked not in (None, environ["MNEME_LLM__MODEL"]):
        click.echo(f"There is no OPENAI_API_KEY for the model {asked}: the extract folds instead.")
    click.echo("Starting Postgres, Redis and a worker in a temporary directory ...")
    try:
        with (
            signals_raise(),
            data_directory(None) as directory,
            Stack(directory, environ=environ, tell=lambda line: click.echo(f"  {line}"), flower=False) as stack,
        ):
            stack.wait_for_worker()
            up = time.monotonic()
            engine = make_engine(stack.settings.require_database_url(), pool_size=2)
            label = f"Folding {len(snapshots)} snapshots"
            with click.progressbar(length=len(snapshots), label=label, show_eta=False, width=30) as bar:
                write_and_wait(engine, stack.settings, snapshots, bar.update)
            folded = time.monotonic()
            with transaction(engine) as connection:
                tree = read_tree(connection, SESSION_ID, depth=2, most_roots=50, with_text=True)
                told = memory(connection, SESSION_ID, BUDGET_TOKENS, stack.settings.mneme)
            engine.dispose()
            _show(tree, told)
    except Stopped:
        click.echo("Stopped.")
        raise SystemExit(INTERRUPTED) from None
    ended = time.monotonic()
    click.echo(
        f"\n{ended - _STARTED:.1f} s: {up - _STARTED:.1f} s to start everything, {folded - up:.1f} s to write and fold"
        f" with model {stack.settings.llm.model}, {ended - folded:.1f} s to show it and stop everything.\n"
    )
    program = program_name()
    click.echo(NEXT.format(mneme=program, pad=" " * len(program)))


def _show(tree: "Tree | None", told: str) -> None:
    """Print the tree and the memory, within the width of the terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo("\nThe session now: what is active, and under it what it was made from\n")
    for line in render(tree, width=width) if tree else ():
        click.echo(line)
    click.echo(f"\nWhat an agent with a context of {BUDGET_TOKENS:,} tokens would carry of it\n")
    click.echo(told)
