"""``mneme show``: one node, its text, its lineage, who made it, and how it stands to what it was made from."""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import click

from worker.exits import NEGATIVE, WRONG_USAGE, or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from models.nodes import SummaryNode
    from models.shown import MakingRun, Relative, Shown

_MADE = {1: "", 2: ", by the aggressive prompt", 3: ", an extract"}


@click.command(short_help="One node with its text, lineage and run.")
@click.argument("node_id", metavar="NODE")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one object: node (with content), parents, successors, run."
)
def show(node_id: str, as_json: bool) -> None:
    """Show NODE: its text, what it was made from, what replaced it, the run that made it, and what of its parents survives.

    NODE is an id or its first digits, four at least, as `mneme tree` and `mneme status` print them. On a terminal, control
    characters in the text are shown as escapes.

    Examples:

      mneme show 3f2a91bc

      mneme show 3f2a91bc --json | jq .node.fidelity
    """
    found = or_exit(lambda: _read(node_id))
    if as_json:
        click.echo(json.dumps(_as_json(found)))
        return
    for line in render(found):
        click.echo(encodable(line))
    click.echo()
    if sys.stdout.isatty():
        click.echo(encodable(visible(found.node.content, keep="\n")))
    else:
        click.echo(found.node.content.encode())


def _read(node_id: str) -> "Shown":
    from models.engine import transaction
    from models.shown import find_nodes, id_range, read_shown
    from worker.commands.database import one_connection

    ids = id_range(node_id)
    if ids is None:
        _end(
            f"{node_id!r} is no node id: expected at least its first four hex digits, as `mneme tree` shows",
            WRONG_USAGE,
        )
    with transaction(one_connection()) as connection:
        found = find_nodes(connection, *ids)
        if len(found) == 1:
            return read_shown(connection, found[0])
    several = f"several nodes begin with {node_id}: {', '.join(map(str, found))}"
    return _end(several if found else f"there is no node {node_id}", NEGATIVE)


def _end(sentence: str, code: int) -> NoReturn:
    click.echo(encodable(f"mneme: {visible(sentence)}"), err=True)
    raise SystemExit(code)


def render(found: "Shown") -> Iterator[str]:
    """Return the lines before the text, safe for a terminal."""
    node = found.node
    yield _line("node", str(node.id))
    yield _line("session", visible(node.session_id))
    yield _line("level", f"{node.level}, messages {node.span_start} to {node.span_end}")
    yield _line("told", _times(node))
    yield _line("state", _state(node))
    yield _line("tokens", _tokens(found))
    yield _line("written", _moment(node.created_at, "%Y-%m-%d %H:%M:%S UTC"), *_maker(node))
    if found.run is not None:
        yield from _run(found.run)
    if node.fidelity is not None:
        yield from _fidelity(node.fidelity)
    yield from _relatives("made from", found.parents)
    yield from _relatives("above it", found.successors)


def _state(node: "SummaryNode") -> str:
    if node.retired_at is not None:
        by = f" by {node.replaced_by}" if node.replaced_by else ""
        return f"retired on {_moment(node.retired_at, '%Y-%m-%d')}: {node.retired_reason}{by}"
    if node.superseded_by is not None:
        return f"superseded by {node.superseded_by}"
    if node.dismissed_at is not None:
        return f"active, dismissed on {_moment(node.dismissed_at, '%Y-%m-%d')}: {node.dismissed_reason}"
    return "active, degraded: to be redone by mneme repair" if node.degraded else "active"


def _times(node: "SummaryNode") -> str:
    first, last = (_moment(moment, "%Y-%m-%d %H:%M") for moment in (node.started_at, node.ended_at))
    return f"{first} to {last} UTC"


def _moment(moment: "datetime | None", shape: str) -> str:
    from datetime import UTC

    return "unknown" if moment is None else moment.astimezone(UTC).strftime(shape)


def _tokens(found: "Shown") -> str:
    tokens, before = found.node.token_count or 0, sum(parent.token_count for parent in found.parents)
    told = f"{tokens:,} estimated"
    if before:
        told += f", {tokens / before:.0%} of the {before:,} that it was made from"
    if found.node.reported_tokens is not None:
        told += f"; {found.node.reported_tokens:,} by its writer's count"
    return told


def _maker(node: "SummaryNode") -> Iterator[str]:
    if node.model is not None:
        prompt = f", prompt {visible(node.prompt_version)}" if node.prompt_version else ""
        yield f"by {visible(node.model)}{prompt}{_MADE.get(node.compaction_level, '')}"


def _run(run: "MakingRun") -> Iterator[str]:
    usage = f"{run.llm_calls} calls, {run.prompt_tokens:,} + {run.completion_tokens:,} tokens"
    took = "" if run.seconds is None else f"{run.seconds:.1f} s"
    yield _line("run", f"{run.id}: {run.state}", f"attempt {run.attempt}" if run.attempt else "", usage, took)
    if run.repairs is not None:
        yield _line("", f"took the place of the extract {run.repairs}")
    if run.error_kind is not None:
        yield _line("", f"because of {run.error_kind}: {visible(run.error or '')}")


def _fidelity(fidelity: "Mapping[str, float]") -> Iterator[str]:
    unsupported, secrets = int(fidelity["unsupported"]), int(fidelity["secrets"])
    yield _line(
        "fidelity",
        f"{fidelity['survived']:.0%} of its parents' names, numbers, dates and addresses survive",
    )
    yield _line("", f"{fidelity['supported']:.0%} of its own stand in them", f"{unsupported} in none")
    if secrets:
        yield _line("", f"{secrets} taken out of it as secrets")


def _relatives(name: str, relatives: "tuple[Relative, ...]") -> Iterator[str]:
    for relative in relatives:
        told = [f"L{relative.level}", f"messages {relative.span_start} to {relative.span_end}"]
        told += [f"{relative.token_count:,} tokens", str(relative.id), relative.state]
        if relative.parent_count:
            told.append(f"({relative.parent_count} below)")
        yield f"{name:<12}{'  '.join(told)}"
        name = ""


def _line(name: str, *told: str) -> str:
    return f"{name:<12}{', '.join(part for part in told if part)}".rstrip()


def _as_json(found: "Shown") -> dict[str, object]:
    from dataclasses import asdict
    from datetime import UTC, datetime
    from uuid import UUID

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [plain(inner) for inner in value]
        if isinstance(value, datetime):
            return value.astimezone(UTC).isoformat()
        return str(value) if isinstance(value, UUID) else value

    return {name: plain(value) for name, value in asdict(found).items()}
