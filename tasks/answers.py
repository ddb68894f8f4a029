"""Deciding whether an answer may become memory. The model's output is untrusted until it has passed every check here."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from models.errors import ContentFailure
from models.nodes import SummaryNode
from models.text import CANNOT_SHRINK_TOKENS, MAX_CONTENT_BYTES, byte_length, clean_text, estimate_tokens, is_blank
from tasks.model import EVERYTHING_OK, SAVE_SNAPSHOT, ModelAnswer


@dataclass(frozen=True)
class Declined:
    """The model saw nothing to fold."""


def accept(answer: ModelAnswer, batch: Sequence[SummaryNode], max_tokens: int) -> str | Declined:
    """Return the summary that the model saved, or ``Declined``.

    Raises:
        ContentFailure: not exactly one valid tool call, cut off, blank, too long, or not smaller than its input.
    """
    if answer.finish_reason == "length":
        raise ContentFailure("the answer was cut off at its limit (finish_reason length)")
    if len(answer.tool_calls) != 1:
        raise ContentFailure(f"expected exactly one tool call, got {len(answer.tool_calls)}")
    call = answer.tool_calls[0]
    if call.name == EVERYTHING_OK:
        return Declined()
    if call.name != SAVE_SNAPSHOT:
        raise ContentFailure("the model called a tool that does not exist")
    summary = _text_of(call.arguments)
    check_summary(summary, batch, max_tokens)
    return summary


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
    if byte_length(summary) > MAX_CONTENT_BYTES:
        raise ContentFailure(f"the summary has {byte_length(summary)} bytes, at most {MAX_CONTENT_BYTES} are stored")
    tokens, before = estimate_tokens(summary), sum(node.token_count or 0 for node in batch)
    if tokens > max_tokens:
        raise ContentFailure(f"the summary has {tokens} tokens, more than mneme.max_tokens, {max_tokens}")
    # One node alone must shrink whatever its size: its fold leaves as many nodes as there were.
    may_grow = len(batch) > 1 and before < CANNOT_SHRINK_TOKENS and tokens <= CANNOT_SHRINK_TOKENS
    if tokens >= before and not may_grow:
        raise ContentFailure(f"the summary has {tokens} tokens and its input {before}: it is not smaller")
