"""Reading the body of a chat completion, which may be anything."""

import json
from typing import Any

from models.errors import TransientFailure
from models.text import clean_text
from tasks.model import ModelAnswer, ToolCall

_NO_COMPLETION = "the model's server answered 200 with something that is no chat completion: check llm.base_url (/v1?)"

MOST_TOKENS = 10**8
"""No call takes so many; a server that says so does not know, and its word would use up a cap on spending."""


def read_completion(body: str) -> ModelAnswer:
    """Return the answer that a body holds; what it leaves out is empty.

    Raises:
        TransientFailure: it is no chat completion.
    """
    try:
        completion = json.loads(body)
        choice = completion["choices"][0]
        message = choice["message"]
        tool_calls = tuple(_tool_call(call) for call in message.get("tool_calls") or [])
        usage = completion.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        text, refusal, finish_reason = message.get("content"), message.get("refusal"), choice.get("finish_reason")
        tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise TransientFailure(_NO_COMPLETION) from None
    prompt_tokens, completion_tokens = (n if type(n) is int and 0 < n <= MOST_TOKENS else 0 for n in tokens)
    return ModelAnswer(
        tool_calls=tool_calls,
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        text=clean_text(text) if isinstance(text, str) else None,
        refusal=clean_text(refusal) if isinstance(refusal, str) and refusal else None,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )


def _tool_call(call: Any) -> ToolCall:
    function = call["function"]
    given_id = call.get("id")
    return ToolCall(
        # Clean, because it may be sent back: a lone surrogate has no encoding.
        name=clean_text(str(function.get("name"))),
        arguments=clean_text(_arguments(function.get("arguments"))),
        id=clean_text(given_id) if isinstance(given_id, str) else "",
    )


def _arguments(value: object) -> str:
    # Some servers give the arguments as an object where the others give its JSON.
    return value if isinstance(value, str) else json.dumps(value)
