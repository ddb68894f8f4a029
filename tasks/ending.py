"""The end of a run: one transaction that writes what came of it, closes the run, and counts again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy import Connection, Engine

from models import breaker, repairs, runs
from models.engine import transaction
from models.errors import ContentFailure, FoldFailed, InputTooLong, StorageError, TransientFailure
from models.runs import Claim, Count, Fold, LostLease, Usage
from models.settings import Settings
from tasks.answers import Declined
from tasks.backoff import retry_seconds
from tasks.patience import Patience

Change = Literal["opened", "closed"]


@dataclass(frozen=True)
class Ended:
    """How a run ended, what it wrote, and what is waiting after it, if that was counted."""

    state: str
    node_id: UUID | None
    after: Count | None
    breaker: Change | None = None

    @property
    def publish_again(self) -> bool:
        """Whether the session is still due with nothing that holds it; a failed run holds it by its ``retry_at``."""
        return self.state != "failed" and self.after is not None and self.after.due


def commit(
    engine: Engine, settings: Settings, claim: Claim, answer: Fold | Declined, usage: Usage,
    *, instead_of: ContentFailure | None = None,
) -> Ended:  # fmt: skip
    """Write the answer: a node with its edges and supersession flags, or that the model declined.

    ``instead_of`` is why what is written is no answer of the model's: the extract, or a dismissal as ``content``.

    Raises:
        TransientFailure: the database did not take it. The answer is lost; that it was, can still be recorded.
    """

    def write(connection: Connection) -> Ended:
        node_id = None
        if isinstance(answer, Fold):
            node_id = runs.commit_fold(connection, claim, answer, usage, instead_of=instead_of)
        elif instead_of is not None:
            runs.close_given_up(connection, claim, usage, error=str(instead_of))
        else:
            runs.close_declined(connection, claim, usage)
        state = "declined" if node_id is None else "succeeded"
        return Ended(state, node_id, _count(connection, claim, settings), _note_answer(connection, claim))

    return _must_be_written(lambda: _end(engine, settings, claim, usage, write))


def fail(engine: Engine, settings: Settings, claim: Claim, failure: FoldFailed, usage: Usage) -> Ended:
    """Record a failure and when to try again; the snapshots stay as they are.

    Raises:
        StorageError: the database did not take that either; the lease will pass.
    """
    wait = retry_seconds(failure, claim.attempt)

    def write(connection: Connection) -> Ended:
        runs.close_failed(connection, claim, usage, kind=failure.kind, error=str(failure), retry_seconds=wait)
        after = _count(connection, claim, settings)
        return Ended("failed", None, after, _note_failure(connection, settings, claim, failure))

    return _end(engine, settings, claim, usage, write)


def give_up(engine: Engine, settings: Settings, claim: Claim, usage: Usage) -> Ended:
    """Write nothing: the run was taken over or cancelled, or an input was taken. Close the run if it is still ours.

    Raises:
        StorageError: the database is out of reach.
    """

    def write(connection: Connection) -> Ended:
        released = runs.close_released(connection, claim.run_id, usage)
        if not released:
            runs.note_usage(connection, claim.run_id, usage)
        return Ended("released", None, _count(connection, claim, settings) if released else None)

    return _end(engine, settings, claim, usage, write)


def replace(
    engine: Engine, settings: Settings, claim: Claim, old_id: UUID, answer: Fold | Declined, usage: Usage
) -> Ended:
    """Put the answer in the place of an extract, or record that the model declined and the extract stays.

    Raises:
        TransientFailure: the database did not take it.
    """

    def write(connection: Connection) -> Ended:
        node_id = None
        if isinstance(answer, Fold):
            node_id = repairs.commit_repair(connection, claim, old_id, answer, usage)
        else:
            repairs.keep(connection, claim, usage)
        state = "declined" if node_id is None else "succeeded"
        return Ended(state, node_id, _count(connection, claim, settings), _note_answer(connection, claim))

    return _must_be_written(lambda: _end(engine, settings, claim, usage, write))


def _must_be_written(write: Callable[[], Ended]) -> Ended:
    try:
        return write()
    except StorageError as error:
        failure = TransientFailure(f"the answer could not be committed: {error}")
        failure.blame = "nobody"
        raise failure from None


def _count(connection: Connection, claim: Claim, settings: Settings) -> Count:
    return runs.count_again(connection, claim.session_id, claim.run_id, settings.mneme)


def _note_answer(connection: Connection, claim: Claim) -> Change | None:
    return "closed" if breaker.note_answer(connection, claim.server) else None


def _note_failure(connection: Connection, settings: Settings, claim: Claim, failure: FoldFailed) -> Change | None:
    """Tell the breaker what a failure says of the model's server. An answer that cannot be used is an answer."""
    if isinstance(failure, ContentFailure | InputTooLong):
        return _note_answer(connection, claim)
    opened = breaker.note_failure(connection, claim.server, failure, claim.session_id, claim.run_id, settings.llm)
    return "opened" if opened else None


def _end(engine: Engine, settings: Settings, claim: Claim, usage: Usage, write: Callable[[Connection], Ended]) -> Ended:
    """End the run in one transaction, which also counts again.

    After an error the run is read: what its row says is what happened. While it says that the run is still running, or
    nothing can be read, the transaction is made again.

    Raises:
        StorageError: it was refused, stayed out of reach until the lease passed, or something held the rows for too long.
    """
    patience = Patience(claim, settings.mneme.lease_seconds)
    while True:
        try:
            with transaction(engine) as connection:
                return write(connection)
        except LostLease:
            return give_up(engine, settings, claim, usage)
        except StorageError as error:
            if not error.transient or patience.is_over():
                raise
            patience.remind(error)
        happened = _what_happened(engine, settings, claim)
        if happened is not None and happened.state != "running":
            return happened
        patience.pause(away=happened is None)


def _what_happened(engine: Engine, settings: Settings, claim: Claim) -> Ended | None:
    """Read how the run stands after an error at its end; None while nothing can be read."""
    try:
        with transaction(engine) as connection:
            state, node_id = runs.read_run(connection, claim.run_id)
            return Ended(state, node_id, runs.count(connection, claim.session_id, settings.mneme))
    except StorageError:
        return None
