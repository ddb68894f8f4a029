"""What a status code means, and what follows. The server's own text is never looked at: it may quote the conversation."""

from email.utils import parsedate_to_datetime
from re import fullmatch
from time import time
from typing import Any

import openai

from models.errors import (
    ConfigurationFailure,
    ContentFailure,
    FoldFailed,
    InputTooLong,
    RequestRefused,
    TransientFailure,
)

_TRANSIENT_STATUS = {408, 409, 425, 429}
_FILTERED = {"content_filter", "content_policy_violation"}


class Refused(Exception):
    """A 400 or 422 that a simpler request may avoid. Never leaves the client."""

    def __init__(self, failure: FoldFailed, named: str | None) -> None:
        super().__init__(str(failure))
        self.failure, self.named = failure, named


def by_status(error: openai.APIStatusError) -> FoldFailed | Refused:
    """Tell failures apart by status and code alone; the server's own text may quote the conversation."""
    status, code = error.status_code, _token(error.code)
    what = f"the model's server answered {status}{f' ({code})' if code else ''}"
    if status == 413 or code == "context_length_exceeded":
        return InputTooLong(f"{what}: the request is too long: set llm.context_window to what the server takes")
    if code in _FILTERED:
        return ContentFailure(f"{what}: the server's content filter stopped it")
    if status in _TRANSIENT_STATUS or status >= 500:
        passing = TransientFailure(what)
        passing.retry_after_seconds = _retry_after(error.response.headers)
        return passing
    if status in (400, 422):
        return Refused(RequestRefused(f"{what}, and so to every simpler request: {_advice(status)}"), _named(error))
    return ConfigurationFailure(f"{what}: {_advice(status)}")


def _named(error: openai.APIStatusError) -> str | None:
    """Return the parameter that the server names: in OpenAI's ``param``, or in FastAPI's list of locations."""
    if isinstance(error.param, str):
        return error.param
    detail = error.body.get("detail") if isinstance(error.body, dict) else None
    locations = [item.get("loc") for item in detail if isinstance(item, dict)] if isinstance(detail, list) else []
    return next((loc[-1] for loc in locations if isinstance(loc, list) and loc and isinstance(loc[-1], str)), None)


def _advice(status: int) -> str:
    if status < 400:
        # Not followed: the conversation would go to a place that nobody configured.
        return "set llm.base_url to where the server redirects"
    return {
        401: "check OPENAI_API_KEY",
        403: "the key may not use this model",
        402: "the account has no money left",
        404: "check llm.model and llm.base_url",
    }.get(status, "check llm.model and the server's own log")


def _token(code: object) -> str | None:
    """Return a code if it looks like one: no sentence, and no key."""
    return code if isinstance(code, str) and fullmatch(r"[a-z][a-z_]{0,47}|\d{1,6}", code) else None


def _retry_after(headers: Any) -> float | None:
    """Return the seconds that the server asks for, from either form of the header."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if 0 <= seconds < float("inf") else None
