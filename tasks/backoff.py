"""When to try again: exponential backoff with jitter, so that an outage does not end in a thundering herd.

After Marc Brooker, "Exponential Backoff And Jitter" (AWS, 2015): spread over the whole range, not around its end.
"""

import random

from models.errors import ConfigurationFailure, FoldFailed

SHORTEST_SECONDS = 30.0
LONGEST_SECONDS = 3600.0


def retry_seconds(failure: FoldFailed, attempt: int, *, uniform: random.Random | None = None) -> float:
    """Return the seconds until the next attempt.

    Args:
        failure: what happened; a server's ``Retry-After`` is obeyed up to an hour.
        attempt: the number of the attempt that failed, from 1.
        uniform: where chance comes from.
    """
    chance = uniform or random.Random()
    if failure.kind == ConfigurationFailure.kind:
        return chance.uniform(LONGEST_SECONDS / 2, LONGEST_SECONDS)
    if failure.retry_after_seconds:  # nought says nothing, and would be a call at every sweep
        return min(failure.retry_after_seconds, LONGEST_SECONDS)
    # No power of two above an hour is needed, and none that overflows.
    longest = min(LONGEST_SECONDS, 60.0 * 2 ** min(attempt - 1, 10))
    return chance.uniform(SHORTEST_SECONDS, longest)
