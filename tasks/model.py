"""What a model is to us: something that takes messages and tools, and answers; and the two tools."""

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


@dataclass(frozen=True)
class ModelAnswer:
    """One answer, read but not yet trusted. ``repr`` leaves out everything that the model wrote."""

    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None = None
    text: str | None = field(default=None, repr=False)
    prompt_tokens: int = 0
    completion_tokens: int = 0


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
            InputTooLong: a shorter request may work.
        """
        ...
