"""A total deadline: wall clock, not per read."""

import time
from dataclasses import dataclass

from models.errors import TransientFailure

SHORTEST_CALL_SECONDS = 1.0


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock of this process."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    def remaining_seconds(self) -> float:
        """Return how many seconds are left; negative once it has passed."""
        return self.at - time.monotonic()

    def for_call(self, timeout_seconds: float) -> float:
        """Return how long the next call to the model may take: the smaller of its timeout and what is left.

        Raises:
            TransientFailure: less than a second is left, in which no call is begun.
        """
        left = self.remaining_seconds()
        if left < SHORTEST_CALL_SECONDS:
            raise TransientFailure("the run's deadline has passed before the model could be asked")
        return min(timeout_seconds, left)
