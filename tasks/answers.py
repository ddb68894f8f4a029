"""Deciding whether an answer may become memory. The model's output is untrusted until it has passed every check here."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from models.errors import ContentFailure
from models.nodes import SummaryNode
from models.text import CANNOT_SHRINK_TOKENS, MAX_CONTENT_BYTES, byte_length, clean_text, estimate_tokens, is_blank
from tasks.model import EVERYTHING_OK, SAVE_SNAPSHOT, ModelAnswer
from tasks.secrets import remove_secrets
from tasks.soundness import check_sound, is_refusal, is_tool_call


@dataclass(frozen=True)
class Declined:
    """The model saw nothing to fold."""


@dataclass(frozen=True)
class Saved:
    """A summary that may be stored, and how many secrets were taken out of it."""

    text: str = field(repr=False)
    secrets: int


def accept(answer: ModelAnswer, batch: Sequence[SummaryNode], max_tokens: int) -> Saved | Declined:
    """Return the summary that the model saved, or ``Declined``.

    Raises:
        ContentFailure: not exactly one valid tool call, cut off, or a text that must not be stored.
    """
    if answer.cut_off:
        raise ContentFailure("the answer was cut off at its limit (finish_reason length)")
    if answer.filtered:
        raise ContentFailure("the answer was stopped by the server's content filter (finish_reason content_filter)")
    if (answer.finish_reason or "").lower() == "error":
        raise ContentFailure("the answer was broken off (finish_reason error)")
    if not answer.tool_calls:
        raise ContentFailure(f"expected exactly one tool call, got {_instead(answer)}")
    if len(answer.tool_calls) > 1:
        raise ContentFailure(f"expected exactly one tool call, got {len(answer.tool_calls)}")
    call = answer.tool_calls[0]
    if call.name == EVERYTHING_OK:
        return Declined()
    if call.name != SAVE_SNAPSHOT:
        raise ContentFailure("the model called a tool that does not exist")
    text = _text_of(call.arguments)
    # Before anything looks for shapes in it: that takes time, which no deadline ends.
    _check_bytes(text)
    summary, secrets = remove_secrets(text)
    check_summary(summary, batch, max_tokens)
    check_sound(summary, "\n".join(node.content for node in batch))
    return Saved(summary, secrets)


def _instead(answer: ModelAnswer) -> str:
    text = answer.text or ""
    if answer.refusal or is_refusal(text):
        return "a refusal"
    if is_tool_call(text):
        return "one written as text"
    return "nothing" if is_blank(text) else "prose"


def _text_of(arguments: str) -> str:
    try:
        text = json.loads(arguments)["text"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ContentFailure("the arguments of save_snapshot are not JSON with a text") from None
    if not isinstance(text, str):
        raise ContentFailure("the text of save_snapshot is no string")
    return clean_text(text).strip()


def check_summary(summary: str, batch: Sequence[SummaryNode], max_tokens: int) -> None:
    """Refuse a summary that must not be stored, whoever made it.

    Raises:
        ContentFailure: it is blank, too long, or not smaller than its input. *Smaller* is judged by our estimator.
    """
    if is_blank(summary):
        raise ContentFailure("the summary is blank")
    _check_bytes(summary)
    tokens, before = estimate_tokens(summary), sum(node.token_count or 0 for node in batch)
    if tokens > max_tokens:
        raise ContentFailure(f"the summary has {tokens} tokens, more than mneme.max_tokens, {max_tokens}")
    # One node alone must shrink whatever its size: its fold leaves as many nodes as there were.
    may_grow = len(batch) > 1 and before < CANNOT_SHRINK_TOKENS and tokens <= CANNOT_SHRINK_TOKENS
    if tokens >= before and not may_grow:
        raise ContentFailure(f"the summary has {tokens} tokens and its input {before}: it is not smaller")


def _check_bytes(summary: str) -> None:
    if byte_length(summary) > MAX_CONTENT_BYTES:
        raise ContentFailure(f"the summary has {byte_length(summary)} bytes, at most {MAX_CONTENT_BYTES} are stored")
