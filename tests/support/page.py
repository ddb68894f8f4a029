"""A session's page, taken apart."""

import base64
import hashlib
import json
import re
from typing import Any

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def data_of(html: str) -> dict[str, Any]:
    (found,) = _DATA.findall(html)
    return json.loads(found)  # type: ignore[no-any-return]


def without_data(html: str) -> str:
    return _DATA.sub("", html)


def hashes_of(html: str, tag: str) -> set[str]:
    """The hashes of what stands in the tags that have no attributes: what the page runs and looks like."""
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return {"'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'" for text in found}
