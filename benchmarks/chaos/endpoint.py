"""A model that answers badly one time in five."""

import json
import random
import threading
import time

from tests.support import model_server as says
from tests.support.model_server import Call

BADLY = 0.2
SLOWER_THAN_THE_TIMEOUT_SECONDS = 4.0


class Moody:
    """Answers after up to a second and a half; soundly, badly, not at all, or with *everything_ok*."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"answers {seed}")
        self._lock = threading.Lock()
        self.sound = 0
        self.always_sound = False

    def answer(self, call: Call) -> None:
        """Answer one call."""
        with self._lock:
            mood, choice, delay = self._chance.random(), self._chance.randrange(9), self._chance.uniform(0, 1.5)
        time.sleep(delay)
        if mood < BADLY and not self.always_sound:
            self._badly(choice, call)
        elif mood < BADLY + 0.02:
            says.declines(call)
        else:
            says.saves(f"What {call.prompt.count('messages')} snapshots came to, told by call {call.number}.")(call)

    @staticmethod
    def _badly(choice: int, call: Call) -> None:
        saved = [("save_snapshot", json.dumps({"text": "Cut"}))]
        (
            lambda: time.sleep(SLOWER_THAN_THE_TIMEOUT_SECONDS),
            lambda: says.drops(call),
            lambda: says.fails(429, retry_after="1")(call),
            lambda: says.fails(500)(call),
            lambda: says.fails(503)(call),
            lambda: says.replies("<html>Bad gateway</html>", "text/html")(call),
            lambda: call.send(200, says.completion([], finish_reason="stop", content="Here is your summary.")),
            lambda: says.saves(" \n ")(call),
            lambda: call.send(200, says.completion(saved, finish_reason="length")),
        )[choice]()
