"""A model that takes its time and answers soundly, so that there are always folds under way."""

import random
import threading

from tests.support import model_server as says
from tests.support.model_server import Call


class Thinks:
    """Answers after up to ``longest_seconds``; while ``held`` is set, not before it is cleared."""

    def __init__(self, longest_seconds: float = 1.0) -> None:
        self._longest = longest_seconds
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        """Let no call be answered."""
        self._free.clear()

    def go_on(self) -> None:
        """Answer again."""
        self._free.set()

    def answer(self, call: Call) -> None:
        """Answer one call."""
        self._free.wait(30)
        says.saves(
            f"What {call.prompt.count('messages')} snapshots came to, told by call {call.number}.",
            after_seconds=random.uniform(0.1, self._longest),
        )(call)
