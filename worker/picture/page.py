"""The page of a session: one HTML document that loads nothing, and in which no text of a conversation can become markup.

What others wrote stands in it once, as JSON in ASCII whose ``<``, ``>`` and ``&`` are escapes too; the script puts it into the
document as text nodes. The policy in the page's head allows our style and our script by their hashes, and nothing else.
"""

import base64
import hashlib
import json
from importlib.resources import files
from string import Template

from models.picture import Picture, PictureNode

_SCRIPTS = ("text", "history", "layout", "diagram", "lineage", "details", "search", "replay", "keys", "start")
_MARKUP = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})


def page(picture: Picture) -> bytes:
    """Return the page of a session, in UTF-8."""
    style = _read("page.css")
    # One scope for all the files, and none of their names in the window's.
    script = '(() => {\n"use strict";\n' + "\n".join(_read(f"{name}.js") for name in _SCRIPTS) + "})();\n"
    # In one pass: what is put in is not looked at again.
    return (
        Template(_read("page.html"))
        .substitute(style=style, script=script, style_hash=_hash(style), script_hash=_hash(script), data=_data(picture))
        .encode()
    )


def _read(name: str) -> str:
    return files("worker.picture").joinpath("page", name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _data(picture: Picture) -> str:
    positions = {node.id: position for position, node in enumerate(picture.nodes)}
    data = {
        "session": picture.session_id,
        "nodes": [_as_json(node, [positions[i] for i in node.parent_ids if i in positions]) for node in picture.nodes],
    }
    return json.dumps(data, separators=(",", ":")).translate(_MARKUP)


def _as_json(node: PictureNode, parents: list[int]) -> dict[str, object]:
    """Return what the page tells of a node, without what is not set. Parents are told by their place among the nodes."""
    told: dict[str, object] = {
        "id": str(node.id),
        "level": node.level,
        # As text: JavaScript's numbers are exact up to 2^53 only.
        "from": str(node.span_start),
        "to": str(node.span_end),
        "tokens": node.token_count,
        "state": node.state,
        "created": node.created_at,
        "text": node.content,
        "parents": parents,
        "covered": node.covered,
        "started": node.started_at,
        "ended": node.ended_at,
        "reported": node.reported_tokens,
        "by": node.superseded_by and str(node.superseded_by),
        "dismissed": node.dismissed_at,
        "dismissedWhy": node.dismissed_reason,
        "retired": node.retired_at,
        "retiredWhy": node.retired_reason,
        "replacedBy": node.replaced_by and str(node.replaced_by),
        "degraded": node.degraded,
        "prompted": node.compaction_level,
        "model": node.model,
        "prompt": node.prompt_version,
    }
    return {name: value for name, value in told.items() if value is not None and value is not False}
