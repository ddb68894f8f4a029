"""The conversation with the model about one batch: asked, told once what was wrong, asked aggressively, and no more.

At most four calls, all within the run's deadline; the steps of the ladder (see ``ladder``) are not among them.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from models.errors import ContentFailure, InputTooLong, RequestRefused
from models.nodes import SummaryNode
from models.runs import Fold
from models.settings import Settings
from models.text import clean_text, estimate_tokens
from tasks import grounding
from tasks.answers import Declined, Saved, accept
from tasks.deadline import SHORTEST_CALL_SECONDS, Deadline
from tasks.model import TOOLS, ChatClient, ModelAnswer
from tasks.prompt import Prompt, correction

logger = logging.getLogger("mneme.job")

MOST_CALLS = 4
_MOST_REPLAYED_CHARACTERS = 100_000
_TARGET_SHARE = 0.75
"""Of the limit on the answer, of which the tool call takes some too, and a model's count of its own words is rough."""

Messages = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class _Attempt:
    """One request: what is said, and how the summary is marked that comes of it."""

    messages: Messages
    compaction_level: int


class Asking:
    """Asks a model to fold a batch.

    Args:
        client: whom.
        settings: limits.
        prompt: what is said.
        deadline: when the run must be over.
        model: as the node will name it.
        called: told of every call before it is made, as (1, 0, 0), and of its cost after: (0, prompt tokens, completion
            tokens).
    """

    def __init__(
        self, client: ChatClient, settings: Settings, prompt: Prompt, deadline: Deadline, *, model: str,
        called: Callable[[int, int, int], None],
    ) -> None:  # fmt: skip
        self._client, self._settings, self._prompt, self._deadline = client, settings, prompt, deadline
        self._model = model
        self._called = called
        self._longest = int(settings.answer_tokens * _TARGET_SHARE)
        self._calls = 0
        self._told_of_unsupported = False

    @property
    def calls_left(self) -> int:
        """How many more calls the run may make."""
        return MOST_CALLS - self._calls

    def fold(self, batch: Sequence[SummaryNode]) -> Fold | Declined:
        """Return the model's summary of the batch, or that it declined.

        Raises:
            ContentFailure: no answer was usable.
            FoldFailed: a call failed.
        """
        opening = self._prompt.opening(batch, self._longest)
        first = _Attempt([_user(opening)], 1)
        answer = self._ask(first)
        try:
            return self._accept(answer, batch, first)
        except ContentFailure as failure:
            problem = failure
        logger.info("answer not usable, the model is told: %s", problem)
        for attempt in (
            _Attempt(_told(self._prompt.system, opening, answer, problem, self._settings), 1),
            self._aggressive(batch),
        ):
            if self.calls_left < 1 or self._deadline.remaining_seconds() < SHORTEST_CALL_SECONDS:
                break
            try:
                return self._accept(self._ask(attempt), batch, attempt)
            except ContentFailure as failure:
                problem = failure
            except (RequestRefused, InputTooLong):
                # It took the opening: what it does not like is the form, or the length, of what was added.
                if attempt.compaction_level > 1:
                    raise
        raise problem

    def _aggressive(self, batch: Sequence[SummaryNode]) -> _Attempt:
        return _Attempt([_user(self._prompt.aggressive(batch, self._longest))], 2)

    def _ask(self, attempt: _Attempt) -> ModelAnswer:
        self._calls += 1
        self._called(1, 0, 0)
        answer = self._client.chat_with_tools(
            attempt.messages, tools=TOOLS, system=self._prompt.system, deadline=self._deadline
        )
        self._called(0, *_usage(self._prompt.system, attempt.messages, answer))
        return answer

    def _accept(self, answer: ModelAnswer, batch: Sequence[SummaryNode], attempt: _Attempt) -> Fold | Declined:
        saved = accept(answer, batch, self._settings.mneme.max_tokens)
        if isinstance(saved, Declined):
            return saved
        fidelity = grounding.measure(saved.text, batch, saved.secrets)
        most = self._settings.mneme.max_unsupported_items
        if fidelity.unsupported > most and not self._told_of_unsupported and self.calls_left:
            self._told_of_unsupported = True
            raise ContentFailure(
                f"the summary holds {fidelity.unsupported} names, numbers, dates or addresses that stand in no snapshot"
            )
        return _fold(saved, self._model, self._prompt.version, attempt.compaction_level, fidelity)


def _usage(system: str, messages: Messages, answer: ModelAnswer) -> tuple[int, int]:
    """Return what an answer says it took; where it says nothing, our estimate, lest the caps on spending take it for free."""
    if answer.prompt_tokens > 0 or answer.completion_tokens > 0:
        return answer.prompt_tokens, answer.completion_tokens
    said = clean_text(system + "".join(str(message["content"] or "") for message in messages))
    written = clean_text("".join([*(call.arguments for call in answer.tool_calls), answer.text or ""]))
    return estimate_tokens(said), estimate_tokens(written)


def _fold(saved: Saved, model: str, version: str, compaction_level: int, fidelity: grounding.Fidelity) -> Fold:
    return Fold(saved.text, model, version, compaction_level, fidelity=fidelity.as_json())


def _told(system: str, opening: str, answer: ModelAnswer, problem: ContentFailure, settings: Settings) -> Messages:
    """Return the conversation so far, with what was wrong: as tool results where there were tool calls, else as a message.

    What a server might not take back (no id, arguments that are not JSON, what no longer fits) is not sent back to it.
    """
    wrong = correction(str(problem))
    written = "".join([*(call.arguments for call in answer.tool_calls), answer.text or ""])
    room = settings.llm.context_window * settings.llm.input_fraction - estimate_tokens(system + opening + wrong)
    short = len(written) < _MOST_REPLAYED_CHARACTERS and estimate_tokens(clean_text(written)) <= room
    if answer.tool_calls and short and answer.can_be_replayed:
        said = {
            "role": "assistant",
            "content": answer.text,
            "tool_calls": [call.as_message() for call in answer.tool_calls],
        }
        results = [{"role": "tool", "tool_call_id": call.id, "content": wrong} for call in answer.tool_calls]
        return [_user(opening), said, *results]
    if answer.text and not answer.tool_calls and short:
        return [_user(opening), {"role": "assistant", "content": answer.text}, _user(wrong)]
    return [_user(f"{opening}\n\n{wrong}")]


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}
