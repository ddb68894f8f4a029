"""``mneme tree``: the DAG of a session on the terminal, or all of it as a page."""

import json
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from worker.commands.tree_page import end_without_session, write_page
from worker.exits import or_exit
from worker.terminal import encodable, opening_words, visible

if TYPE_CHECKING:
    from models.tree import Tree, TreeNode

_LINES = ("├─ ", "└─ ", "│  ", "   ")
_OPENING, _SHORTEST_OPENING = 60, 16  # characters
_PLAIN_LINES = ("|-- ", "`-- ", "|   ", "    ")


@click.command(short_help="What a session's memory consists of.")
@click.argument("session_id", metavar="SESSION")
@click.option(
    "--depth", metavar="N", type=click.IntRange(1, 16), default=3, show_default=True,
    help="Levels to show, the roots counted as the first.",
)  # fmt: skip
@click.option(
    "--level", metavar="N", type=click.IntRange(1, 2**31 - 1), default=1, show_default=True,
    help="Only roots of this level and up.",
)  # fmt: skip
@click.option(
    "--limit", "most_roots", metavar="N", type=click.IntRange(1, 10_000), default=50, show_default=True,
    help="At most so many roots, the newest.",
)  # fmt: skip
@click.option("--text", "with_text", is_flag=True, help="Show the first words of each summary too.")
@click.option("--json", "as_json", is_flag=True, help="Print one object, its nodes nested in their roots.")
@click.option(
    "--html", "html_file", metavar="FILE", type=click.Path(),
    help="Write every node, with its text, as a page for the browser; - is standard output.",
)  # fmt: skip
@click.pass_context
def tree(
    context: click.Context,
    session_id: str,
    depth: int,
    level: int,
    most_roots: int,
    with_text: bool,
    as_json: bool,
    html_file: str | None,
) -> None:
    """Show what SESSION's memory consists of: its active nodes, and below each the nodes it was made from.

    A line tells the level, the messages, the dates (UTC), the estimated tokens and the beginning of the node's id.

    With --html it is the whole history instead, superseded and retired nodes too, as one page that loads nothing from
    anywhere. FILE holds the conversation's text, and only you may read it.

    Examples:

      mneme tree chat-42

      mneme tree chat-42 --limit 5 --text

      mneme tree chat-42 --html chat-42.html
    """
    if html_file is not None:
        _refuse_others_beside_html(context)
        write_page(session_id, html_file)
        return
    found = or_exit(lambda: _read(session_id, depth, level, most_roots, with_text))
    if found is None:
        end_without_session(session_id)
    if as_json:
        click.echo(json.dumps(_as_json(found)))
        return
    on_terminal = sys.stdout.isatty()
    lines = _LINES if on_terminal and sys.stdout.encoding.lower().startswith("utf") else _PLAIN_LINES
    width = shutil.get_terminal_size().columns if on_terminal else None
    for line in render(found, lines, level=level, width=width):
        # Without colours, for click takes them out again where the output is no terminal.
        click.echo(encodable(line))


def _refuse_others_beside_html(context: click.Context) -> None:
    for option in context.command.params:
        given = option.name and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
        if given and isinstance(option, click.Option) and option.name != "html_file":
            raise click.UsageError(f"--html shows everything: it goes without {option.opts[0]}", context)


def _read(session_id: str, depth: int, level: int, most_roots: int, with_text: bool) -> "Tree | None":
    from models.checks import check_session_id
    from models.engine import transaction
    from models.tree import read_tree
    from worker.commands.database import one_connection

    check_session_id(session_id)
    with transaction(one_connection()) as connection:
        return read_tree(connection, session_id, depth=depth, level=level, most_roots=most_roots, with_text=with_text)


def render(
    found: "Tree", lines: tuple[str, str, str, str] = _PLAIN_LINES, *, level: int = 1, width: int | None = None
) -> Iterator[str]:
    """Return the lines of a tree, safe for a terminal.

    Args:
        found: the tree.
        lines: what stands before a node, before the last one, and before what lies under each.
        level: the level that roots were to have at least; named where older ones are left out.
        width: of the terminal, in columns; the first words of a summary are cut to fit. None: they are not.
    """
    yield visible(found.session_id)
    if found.older_roots:
        every = len(found.roots) + found.older_roots
        of_level = f" of level {level} and up" if level > 1 else ""
        yield f"({_count(found.older_roots, 'older root')}{of_level} not shown: --limit {every} shows all)"
    yield from _render(found.roots, "", lines, width)
    share = f" ({found.active_tokens / found.snapshot_tokens:.0%})" if found.snapshot_tokens else ""
    yield (
        f"{_count(found.snapshots, 'snapshot')}, {_count(found.folds, 'fold')}; {found.active_tokens:,} tokens active now,"
        f" {found.snapshot_tokens:,} in all snapshots{share}"
    )


def _render(
    nodes: "tuple[TreeNode, ...]", indent: str, lines: tuple[str, str, str, str], width: int | None
) -> Iterator[str]:
    between, last, under_between, under_last = lines
    for position, node in enumerate(nodes, 1):
        is_last = position == len(nodes)
        start = indent + (last if is_last else between)
        yield start + _describe(node, None if width is None else width - len(start))
        yield from _render(node.parents, indent + (under_last if is_last else under_between), lines, width)


def _describe(node: "TreeNode", width: int | None) -> str:
    told = [f"L{node.level}", f"messages {node.span_start} to {node.span_end}", _dates(node)]
    told += [_count(node.token_count, "token"), str(node.id)[:8]]
    if node.degraded:
        told.append("degraded")
    if node.dismissed_reason:
        told.append(f"dismissed ({node.dismissed_reason})")
    if node.parent_count > len(node.parents):
        told.append(f"({node.parent_count} below)")
    line = "  ".join(told)
    if node.opening is None:
        return line
    room = _OPENING if width is None else min(_OPENING, width - len(line) - len('  ""'))
    return f'{line}  "{opening_words(node.opening, room)}"' if room >= _SHORTEST_OPENING else line


def _dates(node: "TreeNode") -> str:
    first, last = ((moment or "").partition("T")[0] for moment in (node.started_at, node.ended_at))
    if not first and not last:
        return "date unknown"
    return first or last if first == last or not (first and last) else f"{first} to {last}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _as_json(found: "Tree") -> dict[str, object]:
    from dataclasses import asdict

    def plain(node: "TreeNode") -> dict[str, object]:
        values = {name: getattr(node, name) for name in node.__dataclass_fields__}
        if node.opening is None:
            del values["opening"]
        return values | {"id": str(node.id), "parents": [plain(parent) for parent in node.parents]}

    return {**asdict(found), "roots": [plain(root) for root in found.roots]}
