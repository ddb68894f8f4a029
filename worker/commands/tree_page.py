"""``mneme tree --html``: all of a session's memory, as a page in a file."""

import sys
from typing import TYPE_CHECKING, NoReturn

import click

from worker.exits import NEGATIVE, or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from models.picture import Picture


def write_page(session_id: str, path: str) -> None:
    """Write the page of a session, and say what was written; to standard output (``-``) the page alone.

    The database's connection is given back before the first byte is written.
    """
    from worker.picture.page import page
    from worker.picture.private_file import write_private_file

    picture = or_exit(lambda: _read(session_id))
    if picture is None:
        end_without_session(session_id)
    written = page(picture)
    if path == "-":
        sys.stdout.buffer.write(written)
        sys.stdout.buffer.flush()
        return
    or_exit(lambda: write_private_file(path, written))
    nodes = len(picture.nodes)
    told = f"{path}: {nodes:,} node{'' if nodes == 1 else 's'}, {len(written):,} bytes, readable by you alone"
    click.echo(encodable(visible(told)))


def end_without_session(session_id: str) -> NoReturn:
    """End the process, for there is no such session."""
    click.echo(encodable(f"mneme: there is no session {session_id!r}", sys.stderr), err=True)
    raise SystemExit(NEGATIVE)


def _read(session_id: str) -> "Picture | None":
    from models.checks import check_session_id
    from models.engine import transaction
    from models.picture import read_picture
    from worker.commands.database import one_connection

    check_session_id(session_id)
    engine = one_connection()
    try:
        with transaction(engine) as connection:
            return read_picture(connection, session_id)
    finally:
        engine.dispose()
