"""What a server accepts is learned from what it refuses: a fixed ladder of ever simpler requests.

Servers that speak the same protocol differ in it: newer models refuse ``max_tokens``, older servers know nothing else; some
know no ``parallel_tool_calls``, some no ``tool_choice`` but ``auto``. Nobody should have to know which.
"""

from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Literal

from models.breaker import Server

LARGER_LIMIT = 4
"""How many times the limit on the answer is given to a model that spends it on thinking."""


@dataclass(frozen=True)
class Rung:
    """One form of the request; the modern one by default."""

    limit: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    parallel_tool_calls: bool = True
    tool_choice: Literal["required", "auto"] = "required"
    last: bool = False
    """Whether this is the form of a server that is modern in its limit and in nothing else."""

    def fields(self, max_tokens: int) -> dict[str, Any]:
        """Return the fields of the request that servers differ in."""
        fields: dict[str, Any] = {self.limit: max_tokens, "tool_choice": self.tool_choice}
        return fields | ({"parallel_tool_calls": False} if self.parallel_tool_calls else {})

    def below(self, named: str | None) -> "Rung | None":
        """Return the next simpler form after a refusal, or None when there is none.

        Args:
            named: the parameter that the server did not like, if it said so.
        """
        steps: dict[str, Rung] = {}
        if self.limit == "max_completion_tokens" and not self.last:
            steps["max_completion_tokens"] = replace(self, limit="max_tokens")
        if self.parallel_tool_calls:
            steps["parallel_tool_calls"] = replace(self, parallel_tool_calls=False)
        if self.tool_choice == "required":
            steps["tool_choice"] = replace(self, tool_choice="auto")
        if not steps and self.limit == "max_tokens":
            steps["max_tokens"] = replace(self, limit="max_completion_tokens", last=True)
        return steps.get(named or "", next(iter(steps.values()), None))


@dataclass(frozen=True)
class Learned:
    """What a server was found to accept, and whether its model needs the larger limit."""

    rung: Rung = Rung()
    larger_limit: bool = False


class Memory:
    """What this process has learned, for each server and model. It is lost with the process, and learned again."""

    def __init__(self) -> None:
        self._learned: dict[Server, Learned] = {}
        self._lock = Lock()

    def of(self, server: Server) -> Learned:
        """Return what is known of a server; nothing yet means the modern request."""
        with self._lock:
            return self._learned.get(server, Learned())

    def learn(self, server: Server, learned: Learned) -> None:
        """Remember what just worked."""
        with self._lock:
            self._learned[server] = learned

    def forget(self, server: Server) -> None:
        """Begin anew: what worked once is refused now."""
        with self._lock:
            self._learned.pop(server, None)
