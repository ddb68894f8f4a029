"""Importing snapshots from a file: in batches, each committed before the next is read.

Writing is idempotent, so an import that was interrupted anywhere continues when it is run again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from models import importing_sql
from models.engine import transaction
from models.errors import InvalidNode, StorageError
from models.nodes import SummaryNode
from models.snapshot_lines import numbered_lines, parse_line

# Each snapshot is written in a subtransaction. Postgres keeps 64 of those of a transaction at hand for every other
# backend to see; beyond that it makes them all look on disk. Batches twice or ten times as large are hardly faster.
BATCH_LINES = 60

ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Refused:
    """A line that was not imported, and why, in words that quote none of its content."""

    line: int
    reason: str


@dataclass
class Imported:
    """What became of one batch of lines, once it is committed.

    ``size`` is in bytes of the file. A snapshot that another writer wrote at the same moment may count as ``written``.
    """

    size: int = 0
    written: int = 0
    already_there: int = 0
    refused: list[Refused] = field(default_factory=list)
    session_ids: set[str] = field(default_factory=set)


def import_snapshots(engine: Engine, stream: BinaryIO) -> Iterator[Imported]:
    """Write the snapshots of a file of JSON lines, and yield what became of each batch after its commit.

    Blank lines count for nothing. A transaction that may pass later (a deadlock, a connection lost) is tried again.

    Raises:
        StorageError: the database is out of reach, or refused for a reason that is not in the line. What was yielded
            stays written.
        OSError: the file cannot be read further.
    """
    lines = numbered_lines(stream)
    while batch := list(islice(lines, BATCH_LINES)):
        imported = Imported(size=sum(line.size for line in batch))
        nodes: dict[int, SummaryNode] = {}
        for line in batch:
            if not line.raw.strip():
                continue
            try:
                nodes[line.number] = parse_line(line.raw)
            except InvalidNode as error:
                imported.refused.append(Refused(line.number, str(error)))
        if nodes:
            _write(engine, nodes, imported)
        imported.refused.sort(key=lambda refused: refused.line)
        yield imported


def _write(engine: Engine, nodes: dict[int, SummaryNode], imported: Imported) -> None:
    """Write the nodes (by line number) at once; where the database refuses one, each by itself."""
    try:
        found, refused = _with_patience(lambda: (_write_at_once(engine, list(nodes.values())), []))
    except _LineRefused:
        found, refused = _with_patience(lambda: _write_one_by_one(engine, nodes))
    imported.refused += refused
    # A node that comes back twice was written by the first of two equal lines and found by the second.
    new = {node_id for node_id, already_there in found if not already_there}
    imported.written = len(new)
    imported.already_there = len(found) - len(new)
    lost = {line.line for line in refused}
    imported.session_ids = {node.session_id for number, node in nodes.items() if number not in lost}


_Found = list[tuple[UUID, bool]]


class _LineRefused(Exception):
    """The database refused the statement for what is in a line."""


def _write_at_once(engine: Engine, nodes: list[SummaryNode]) -> _Found:
    with transaction(engine) as connection:
        try:
            return _execute(connection, nodes)
        except DBAPIError as error:
            if _sqlstate(error).startswith(_ABOUT_THE_LINE):
                raise _LineRefused from None
            raise


def _write_one_by_one(engine: Engine, nodes: dict[int, SummaryNode]) -> tuple[_Found, list[Refused]]:
    found: _Found = []
    refused = []
    with transaction(engine) as connection:
        for number, node in nodes.items():
            try:
                with connection.begin_nested():
                    found += _execute(connection, [node])
            except DBAPIError as error:
                if not _sqlstate(error).startswith(_ABOUT_THE_LINE):
                    raise
                refused.append(Refused(number, _reason(error, node)))
    return found, refused


def _execute(connection: Connection, nodes: list[SummaryNode]) -> _Found:
    rows = connection.execute(
        importing_sql.WRITE_SNAPSHOTS,
        {
            "session_ids": [node.session_id for node in nodes],
            "span_starts": [node.span_start for node in nodes],
            "span_ends": [node.span_end for node in nodes],
            "contents": [node.content for node in nodes],
            "starts": [node.started_at for node in nodes],
            "ends": [node.ended_at for node in nodes],
            "token_counts": [node.token_count for node in nodes],
        },
    )
    return [(row.id, row.already_there) for row in rows]


# Classes of SQLSTATE: the data cannot be as they are, or contradict what is written.
_ABOUT_THE_LINE = ("22", "23")


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def _reason(error: DBAPIError, node: SummaryNode) -> str:
    """Say why the database refused a line, in words of ours: its own may quote what it refused."""
    if _sqlstate(error) == "23505":
        return (
            f"messages {node.span_start} to {node.span_end} of its session already have a snapshot with other content"
        )
    return f"the database refused it (SQLSTATE {_sqlstate(error)})"


def _with_patience(
    write: Callable[[], tuple[_Found, list[Refused]]],
) -> tuple[_Found, list[Refused]]:
    """Try a transaction again, a few times, while it fails for what may have passed a moment later."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return write()
        except StorageError as error:
            if not error.transient:
                raise
            time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)
    return write()
