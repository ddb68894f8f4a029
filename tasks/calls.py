"""Calls of the model that are under way in this process, each in a loop of its thread's own, and how all are cut off."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from models.errors import TransientFailure

_calls: dict[asyncio.AbstractEventLoop, asyncio.Task[str]] = {}


def run_call(work: Coroutine[Any, Any, str]) -> str:
    """Run a coroutine in a loop of this thread's own.

    Not by ``asyncio.run``, which waits at the end for the threads of the loop, and so for a name server that hangs.

    Raises:
        TransientFailure: it was cut off.
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
