"""Text as Postgres can hold it."""

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return the text without what Postgres cannot hold and no reader can see: NUL and lone surrogates."""
    return _UNSTORABLE.sub("", text)
