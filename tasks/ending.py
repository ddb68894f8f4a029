"""The end of a run: one transaction that writes what came of it, closes the run, and counts again."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine

from models import runs
from models.engine import transaction
from models.errors import FoldFailed, StorageError, TransientFailure
from models.runs import Claim, Count, Fold, LostLease, Usage
from models.settings import MnemeSettings
from tasks.answers import Declined
from tasks.backoff import retry_seconds

logger = logging.getLogger("mneme.job")

PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Ended:
    """How a run ended, what it wrote, and what is waiting after it, if that was counted."""

    state: str
    node_id: UUID | None
    after: Count | None

    @property
    def publish_again(self) -> bool:
        """Whether the session is still due with nothing that holds it; a failed run holds it by its ``retry_at``."""
        return self.state != "failed" and self.after is not None and self.after.due


def commit(engine: Engine, settings: MnemeSettings, claim: Claim, answer: Fold | Declined, usage: Usage) -> Ended:
    """Write the answer: a node with its edges and supersession flags, or that the model declined."""

    def write(connection: Connection) -> tuple[str, UUID | None]:
        if isinstance(answer, Declined):
            runs.close_declined(connection, claim, usage)
            return "declined", None
        return "succeeded", runs.commit_fold(connection, claim, answer, usage)

    return _end(engine, settings, claim, usage, write)


def fail(engine: Engine, settings: MnemeSettings, claim: Claim, failure: FoldFailed, usage: Usage) -> Ended:
    """Record a failure and when to try again; the snapshots stay as they are."""
    wait = retry_seconds(failure, claim.attempt)

    def write(connection: Connection) -> tuple[str, UUID | None]:
        runs.close_failed(connection, claim, usage, kind=failure.kind, error=str(failure), retry_seconds=wait)
        return "failed", None

    return _end(engine, settings, claim, usage, write)


def give_up(engine: Engine, settings: MnemeSettings, claim: Claim, usage: Usage) -> Ended:
    """Write nothing: the run was taken over, or an input was. Close the run if it is still ours."""
    with transaction(engine) as connection:
        released = runs.close_released(connection, claim.run_id, usage)
        after = runs.count_after(connection, claim, settings) if released else None
    return Ended("released", None, after)


def _end(
    engine: Engine,
    settings: MnemeSettings,
    claim: Claim,
    usage: Usage,
    write: Callable[[Connection], tuple[str, UUID | None]],
) -> Ended:
    """End the run in one transaction, which also counts again.

    After an error the run is read: what its row says is what happened. While it says that the run is still running, the
    transaction is made again, for as long as a Postgres takes to restart.

    Raises:
        StorageError: it stayed out of reach; the lease will pass, and the batch be folded again.
        TransientFailure: the database refuses what was to be written.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with transaction(engine) as connection:
                state, node_id = write(connection)
                return Ended(state, node_id, runs.count_after(connection, claim, settings))
        except LostLease:
            return give_up(engine, settings, claim, usage)
        except StorageError as error:
            if not error.transient:
                raise TransientFailure(str(error)) from None
            if time.monotonic() > until:
                raise
            logger.warning("run %s could not be ended, trying again: %s", claim.run_id, error)
        state, node_id = _what_happened(engine, claim)
        if state != "running":
            return Ended(state, node_id, None)
        time.sleep(PAUSE_SECONDS)


def _what_happened(engine: Engine, claim: Claim) -> tuple[str, UUID | None]:
    try:
        with transaction(engine) as connection:
            return runs.read_run(connection, claim.run_id)
    except StorageError:
        return "running", None  # as far as anybody can know now
