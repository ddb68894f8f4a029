"""The model behind any server that speaks OpenAI's chat completions."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import openai

from models.breaker import server_of
from models.errors import ConfigurationFailure, TransientFailure
from models.settings import Settings
from tasks.bounded_http import bounded_http_client
from tasks.calls import run_call
from tasks.completion import read_completion
from tasks.deadline import Deadline
from tasks.ladder import LARGER_LIMIT, Learned, Memory, Rung
from tasks.model import ModelAnswer
from tasks.statuses import Refused, by_status

# At debug, these write whole requests, and with them the conversation, into the log of whoever asked for -l debug.
for _name in ("openai", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_NO_KEY = "none"


class OpenAIClient:
    """Asks one model of one server, one request at a time.

    Args:
        settings: model, base URL, timeout and the limit on the answer.
        api_key: None for a server that wants none.
    """

    def __init__(self, settings: Settings, api_key: str | None) -> None:
        self._model = settings.require_model()
        self._llm = settings.llm
        self._server = server_of(settings)
        self._limit = settings.answer_tokens
        self._larger_limit = _larger_limit(settings)
        self._api_key = api_key
        self._cut_off = False

    def chat_with_tools(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], system: str, deadline: Deadline
    ) -> ModelAnswer:
        """Ask the model once; see ``ChatClient``."""
        request = {
            "model": self._model,
            "messages": [{"role": "system", "content": system}, *messages],
            "tools": list(tools),
        }
        known = _memory.of(self._server)
        larger = known.larger_limit or self._cut_off
        limit = self._larger_limit if larger else self._limit
        rung, body = self._down_the_ladder(known.rung, request, limit, deadline)
        answer = read_completion(body)
        self._cut_off = answer.cut_off
        _memory.learn(self._server, Learned(rung, known.larger_limit or (larger and not self._cut_off)))
        return answer

    def _down_the_ladder(self, rung: Rung, request: dict[str, Any], limit: int, deadline: Deadline) -> tuple[Rung, str]:
        """Send the request in ever simpler forms until the server takes one; return that form and the answer's body."""
        while True:
            seconds = deadline.for_call(self._llm.timeout_seconds)
            try:
                return rung, run_call(self._post(request | rung.fields(limit), seconds))
            except Refused as refused:
                simpler = rung.below(refused.named)
                if simpler is None:
                    _memory.forget(self._server)
                    raise refused.failure from None
                rung = simpler

    async def _post(self, request: dict[str, Any], seconds: float) -> str:
        """Return the body of the answer.

        The client's own timeout is per read, and a server that sends a byte a second outlives it: the one around it ends
        everything. Its retries are off, for each would start the clock anew.
        """
        client = openai.AsyncOpenAI(
            api_key=self._api_key or _NO_KEY,
            base_url=self._llm.base_url,
            default_headers=dict(self._llm.headers),
            timeout=seconds,
            max_retries=0,
            http_client=bounded_http_client(),
        )
        try:
            async with asyncio.timeout(seconds), client:
                response = await client.chat.completions.with_raw_response.create(
                    **request, extra_body=dict(self._llm.extra_body) or None
                )
                return str(response.text)
        except (TimeoutError, openai.APITimeoutError):
            raise TransientFailure(f"the model did not answer within {seconds:.0f} s") from None
        except openai.APIConnectionError as error:
            cause = type(error.__cause__ or error).__name__
            raise TransientFailure(f"no connection to the model's server ({cause})") from None
        except openai.APIStatusError as error:
            raise by_status(error) from None
        except openai.OpenAIError as error:
            raise ConfigurationFailure(f"the request could not be made ({type(error).__name__})") from None


_memory = Memory()


def _larger_limit(settings: Settings) -> int:
    """Return the limit for a model that thinks before it answers, within what its window leaves beside the input."""
    return min(LARGER_LIMIT * settings.mneme.max_tokens, settings.room_tokens)
