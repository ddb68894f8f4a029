"""``mneme config``: every setting as it is in effect, and where it came from."""

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from worker.exits import or_exit
from worker.terminal import encodable, visible

if TYPE_CHECKING:
    from models.settings import Effective


@click.command(short_help="Every setting in effect, and where it came from.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects: section, key, value, source.")
def config(as_json: bool) -> None:
    """Show every setting as it is in effect, and where it came from: a variable, a file, or the default.

    Passwords in URLs and the values of headers are not shown. Exit code 2 when the settings are wrong. Workers have their
    own environment: run it there.

    Examples:

      mneme config

      mneme config --json | jq '.[] | select(.source != "default")'
    """
    from models.settings import effective_settings

    found = or_exit(effective_settings)
    if as_json:
        click.echo(json.dumps([setting._asdict() for setting in found]))
        return
    for line in render(found):
        click.echo(encodable(line))
    click.echo(f"\n# OPENAI_API_KEY is {'set' if os.environ.get('OPENAI_API_KEY') else 'not set'}")


def render(found: "list[Effective]") -> Iterator[str]:
    """Return the lines, in the form of ``config.toml``."""
    section = ""
    for setting in found:
        if setting.section != section:
            yield f"{chr(10) if section else ''}[{setting.section}]"
            section = setting.section
        unset = setting.value is None
        line = f"# {setting.key} is not set" if unset else f"{setting.key} = {_toml(setting.value)}"
        yield line if unset else f"{visible(line):<42} # {visible(setting.source)}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items())
        return f"{{{inner}}}"
    return json.dumps(value)
