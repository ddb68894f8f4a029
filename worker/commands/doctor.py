"""``mneme doctor``: the proof that nothing is lost and nothing folded twice, rule by rule."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from worker.exits import INTERRUPTED, NEGATIVE, or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from models.doctor import Finding


@click.command(short_help="Check every row against the rules.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: clean, and rules with what was found of each.")
def doctor(as_json: bool) -> None:
    """Check every row against the rules of mneme: whether anything was lost, or folded twice, or waits unseen.

    Each rule is shown as "ok", as "by the schema" where no row can break it, or with the number of violations and the first
    ids, what that means and what to do. Exit code 1 when any is broken. It reads one state of the database and writes
    nothing, so workers may go on; it shows no text of a conversation.

    Examples:

      mneme doctor

      mneme doctor --json | jq '.rules[] | select(.violations > 0)'
    """
    try:
        findings = or_exit(_diagnose)
    except KeyboardInterrupt:
        click.echo("mneme: interrupted: nothing was judged", err=True)
        raise SystemExit(INTERRUPTED) from None
    if as_json:
        click.echo(json.dumps(_as_json(findings)))
    else:
        for line in render(findings):
            click.echo(encodable(line))
    if any(finding.violations for finding in findings):
        raise SystemExit(NEGATIVE)


def _diagnose() -> "list[Finding]":
    from models.doctor import diagnose
    from models.settings import get_settings
    from worker.commands.database import one_connection

    return diagnose(one_connection(), get_settings())


def render(findings: "list[Finding]") -> Iterator[str]:
    """Return the lines of a diagnosis, safe for a terminal: one for each rule, more below each that is broken."""
    width = max(len(finding.rule.name) for finding in findings)
    for finding in findings:
        yield f"{_standing(finding):<15}{finding.rule.name:<{width + 2}}{finding.rule.must_hold}{_keepers(finding)}"
        if finding.violations:
            yield from (f"    {line}" for line in _explain(finding))
    broken = [finding for finding in findings if finding.violations]
    if broken:
        total = sum(finding.violations for finding in broken)
        yield f"{len(broken)} of {len(findings)} rules are broken, with {_count(total, 'violation')}."
    else:
        yield f"All {len(findings)} rules hold."


def _standing(finding: "Finding") -> str:
    return f"{finding.violations:,} BROKEN" if finding.violations else finding.status


def _keepers(finding: "Finding") -> str:
    """Name what keeps a rule that no row can break, unless there is too much of it for a line."""
    keepers = [keeper.name for keeper in finding.rule.enforced_by]
    return f" ({', '.join(keepers)})" if finding.status == "by the schema" and len(keepers) <= 2 else ""


def _explain(finding: "Finding") -> Iterator[str]:
    if finding.first_ids:
        ids = ", ".join(visible(found) for found in finding.first_ids)
        more = finding.violations - len(finding.missing) - len(finding.first_ids)
        yield f"{finding.rule.ids_of}s: {ids}{f' and {more:,} more' if more else ''}"
    for missing in finding.missing:
        yield f"missing or not in force: {missing}"
    yield finding.rule.advice


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _as_json(findings: "list[Finding]") -> dict[str, object]:
    return {
        "clean": not any(finding.violations for finding in findings),
        "rules": [
            {
                "rule": finding.rule.name,
                "must_hold": finding.rule.must_hold,
                "status": finding.status,
                "violations": finding.violations,
                "ids_of": finding.rule.ids_of,
                "first_ids": list(finding.first_ids),
                "enforced_by": [str(keeper) for keeper in finding.rule.enforced_by],
                "missing": [str(missing) for missing in finding.missing],
                "advice": finding.rule.advice if finding.violations else None,
            }
            for finding in findings
        ],
    }
