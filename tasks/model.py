"""What a model is to us: something that takes messages and tools, and answers; and the two tools."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tasks.deadline import Deadline

SAVE_SNAPSHOT = "save_snapshot"
EVERYTHING_OK = "everything_ok"

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": SAVE_SNAPSHOT,
            "description": "Save the finished summary. Call it once, with the whole text.",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string", "description": "The whole summary, in plain text."}},
                "required": ["text"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": EVERYTHING_OK,
            "description": "Say that nothing in these snapshots could be held more tightly. They stay as they are.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]


@dataclass(frozen=True)
class ToolCall:
    """One tool call as the model wrote it; ``arguments`` is its unparsed JSON."""

    name: str
    arguments: str = field(repr=False)
    id: str = ""

    def as_message(self) -> dict[str, Any]:
        """Return it in the form in which it came."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


_CUT_OFF = {"length", "max_tokens", "max_output_tokens", "model_length"}
_FILTERED = {"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "refusal"}


@dataclass(frozen=True)
class ModelAnswer:
    """One answer, read but not yet trusted. ``repr`` leaves out everything that the model wrote."""

    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None = None
    text: str | None = field(default=None, repr=False)
    refusal: str | None = field(default=None, repr=False)
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def cut_off(self) -> bool:
        """Whether the server says, in one of the words for it, that the answer ends at its limit."""
        return (self.finish_reason or "").lower() in _CUT_OFF

    @property
    def filtered(self) -> bool:
        """Whether the server says, in one of the words for it, that it let no further text pass."""
        return (self.finish_reason or "").lower() in _FILTERED

    @property
    def can_be_replayed(self) -> bool:
        """Whether every tool call has an id and arguments that are JSON: servers parse what they are told of themselves."""
        return all(call.id and _is_object(call.arguments) for call in self.tool_calls)


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


class ChatClient(Protocol):
    """Anything that can ask a model. Give one to ``L2Runner`` to use your own."""

    def chat_with_tools(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], system: str, deadline: Deadline
    ) -> ModelAnswer:
        """Ask the model once.

        Args:
            messages: the conversation after the system prompt, in the form of OpenAI's chat completions.
            tools: what it may call.
            system: the system prompt.
            deadline: when the answer must be there, by the wall clock, however it trickles in.

        Raises:
            TransientFailure: it may work later.
            ConfigurationFailure: it will not work until the settings are mended.
            InputTooLong, RequestRefused: a shorter request may work.
            ContentFailure: the server will not have its model answer this.
        """
        ...
