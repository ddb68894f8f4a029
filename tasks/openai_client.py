"""The model behind any server that speaks OpenAI's chat completions."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from re import fullmatch
from time import time
from typing import Any

import openai

from models.errors import ConfigurationFailure, FoldFailed, InputTooLong, TransientFailure
from models.settings import Settings
from tasks.bounded_http import bounded_http_client
from tasks.deadline import Deadline
from tasks.model import ModelAnswer, ToolCall

# At debug, these write whole requests, and with them the conversation, into the log of whoever asked for -l debug.
for _name in ("openai", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_TRANSIENT_STATUS = {408, 409, 425, 429}
_NO_KEY = "none"


class OpenAIClient:
    """Asks one model of one server, one request at a time.

    Args:
        settings: model, base URL, timeout and the limit on the answer.
        api_key: None for a server that wants none.
    """

    def __init__(self, settings: Settings, api_key: str | None) -> None:
        self._model = settings.require_model()
        self._base_url = settings.llm.base_url
        self._timeout_seconds = settings.llm.timeout_seconds
        self._max_tokens = settings.mneme.max_tokens
        self._api_key = api_key

    def chat_with_tools(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], system: str, deadline: Deadline
    ) -> ModelAnswer:
        """Ask the model once; see ``ChatClient``."""
        seconds = deadline.for_call(self._timeout_seconds)
        request = {
            "model": self._model,
            "messages": [{"role": "system", "content": system}, *messages],
            "tools": list(tools),
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_completion_tokens": self._max_tokens,
        }
        return _read(_run(self._post(request, seconds)))

    async def _post(self, request: dict[str, Any], seconds: float) -> str:
        """Return the body of the answer.

        The client's own timeout is per read, and a server that sends a byte a second outlives it: the one around it ends
        everything. Its retries are off, for each would start the clock anew.
        """
        client = openai.AsyncOpenAI(
            api_key=self._api_key or _NO_KEY,
            base_url=self._base_url,
            timeout=seconds,
            max_retries=0,
            http_client=bounded_http_client(),
        )
        try:
            async with asyncio.timeout(seconds), client:
                response = await client.chat.completions.with_raw_response.create(**request)
                return str(response.text)
        except (TimeoutError, openai.APITimeoutError):
            raise TransientFailure(f"the model did not answer within {seconds:.0f} s") from None
        except openai.APIConnectionError as error:
            cause = type(error.__cause__ or error).__name__
            raise TransientFailure(f"no connection to the model's server ({cause})") from None
        except openai.APIStatusError as error:
            raise _by_status(error) from None
        except openai.OpenAIError as error:
            raise ConfigurationFailure(f"the request could not be made ({type(error).__name__})") from None


_calls: dict[asyncio.AbstractEventLoop, asyncio.Task[str]] = {}


def _run(work: Coroutine[Any, Any, str]) -> str:
    """Run a coroutine in a loop of this thread's own.

    Not by ``asyncio.run``, which waits at the end for the threads of the loop, and so for a name server that hangs.
    """
    loop = asyncio.new_event_loop()
    try:
        _calls[loop] = loop.create_task(work)
        return loop.run_until_complete(_calls[loop])
    except asyncio.CancelledError:
        failure = TransientFailure("the call was cut off by the worker's shutdown")
        failure.blame = "nobody"
        raise failure from None
    finally:
        _calls.pop(loop, None)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def cut_off_calls() -> int:
    """End every call under way in this process, for a cold shutdown; return how many there were."""
    under_way = list(_calls.items())
    for loop, call in under_way:
        with suppress(RuntimeError):  # ended, and its loop closed, a moment ago
            loop.call_soon_threadsafe(call.cancel)
    return len(under_way)


def _by_status(error: openai.APIStatusError) -> FoldFailed:
    """Tell failures apart by status and code alone; the server's own text may quote the conversation."""
    status, code = error.status_code, _token(error.code)
    what = f"the model's server answered {status}{f' ({code})' if code else ''}"
    if status == 413 or (status == 400 and code == "context_length_exceeded"):
        return InputTooLong(f"{what}: the request is too long")
    if status in _TRANSIENT_STATUS or status >= 500:
        passing = TransientFailure(what)
        passing.retry_after_seconds = _retry_after(error.response.headers)
        return passing
    failure = ConfigurationFailure(f"{what}: {_advice(status)}")
    if status in (400, 422):  # it may be this one request that the server does not like
        failure.blame = "server"
    return failure


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
    """Return a code if it is one, and no sentence."""
    return code if isinstance(code, str) and fullmatch(r"[\w.\-]{1,64}", code) else None


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
        except (ValueError, TypeError):
            return None
    return seconds if 0 <= seconds < float("inf") else None


def _read(body: str) -> ModelAnswer:
    """Read an answer that may be anything.

    Raises:
        TransientFailure: it is no chat completion.
    """
    try:
        completion = json.loads(body)
        choice = completion["choices"][0]
        message = choice["message"]
        calls = [call["function"] for call in message.get("tool_calls") or []]
        tool_calls = tuple(ToolCall(str(call.get("name")), _arguments(call.get("arguments"))) for call in calls)
        usage = completion.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        text, finish_reason = message.get("content"), choice.get("finish_reason")
        tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise TransientFailure("the model's server answered 200 with something that is no chat completion") from None
    prompt_tokens, completion_tokens = (n if type(n) is int else 0 for n in tokens)
    return ModelAnswer(
        tool_calls=tool_calls,
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        text=text if isinstance(text, str) else None,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )


def _arguments(value: object) -> str:
    # Some servers give the arguments as an object where the others give its JSON.
    return value if isinstance(value, str) else json.dumps(value)
