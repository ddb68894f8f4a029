"""How long the end of a run is tried, how often, and how often that is told."""

import logging
import math
import time

from models.errors import StorageError
from models.runs import Claim

logger = logging.getLogger("mneme.job")

PATIENCE_SECONDS = 30.0
"""For what holds the rows. While Postgres is away the end is tried until the lease passes: nobody else can do more."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0
REMIND_SECONDS = 60.0


class Patience:
    """For the end of one run.

    Args:
        claim: whose end is tried.
        lease_seconds: how long its lease was at the claim.
    """

    def __init__(self, claim: Claim, lease_seconds: float) -> None:
        self._run_id = claim.run_id
        self._lease_passes = claim.begun_at + lease_seconds
        self._until = time.monotonic() + PATIENCE_SECONDS
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._remind_at = -math.inf

    def is_over(self) -> bool:
        """Whether to give up."""
        return time.monotonic() > self._until

    def remind(self, error: StorageError) -> None:
        """Say once a minute that it is still tried."""
        if time.monotonic() < self._remind_at:
            return
        self._remind_at = time.monotonic() + REMIND_SECONDS
        logger.warning("run %s could not be ended, trying again: %s", self._run_id, error)

    def pause(self, *, away: bool) -> None:
        """Wait until the next attempt; ``away``: nothing could be read either."""
        if away:
            # Patience begins anew when Postgres is back.
            self._until = max(self._until, min(time.monotonic() + PATIENCE_SECONDS, self._lease_passes))
        time.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
