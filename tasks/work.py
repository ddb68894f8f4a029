"""What makes a summary of a claimed batch: a model, which may be shown less than was claimed, or the extract."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from traceback import extract_tb
from typing import Protocol

from sqlalchemy import Engine

from models import runs
from models.engine import in_transaction
from models.errors import FoldFailed, InputTooLong, RequestRefused, StorageError, TransientFailure
from models.nodes import SummaryNode
from models.runs import Claim, Fold, LostLease
from models.settings import EXTRACT
from tasks.answers import Declined, check_summary
from tasks.asking import Asking
from tasks.extract import COMPACTION_LEVEL, EXTRACT_VERSION, extract
from tasks.grounding import measure
from tasks.secrets import remove_secrets


class Work(Protocol):
    """Makes one summary. ``claimed`` is what it is made of by now."""

    claimed: Claim

    def fold(self) -> Fold | Declined:
        """Return the summary of what is claimed, or that there is nothing to fold.

        Raises:
            FoldFailed: it could not be made.
            LostLease: the run is no longer ours.
        """
        ...


class Extracting:
    """Makes the extract."""

    def __init__(self, claimed: Claim, max_tokens: int) -> None:
        self.claimed = claimed
        self._max_tokens = max_tokens

    def fold(self) -> Fold:
        """Return the extract; see ``Work``."""
        with faults_of_ours():
            return extract_fold(self.claimed.batch, self._max_tokens)


class AskingModel:
    """Asks a model; halves the batch once when the server says that it is too long, or refuses it in every form."""

    def __init__(self, claimed: Claim, asking: Asking, engine: Engine, halved: Callable[[Claim], None]) -> None:
        self.claimed = claimed
        self._asking, self._engine, self._halved = asking, engine, halved

    def fold(self) -> Fold | Declined:
        """Return the model's answer; see ``Work``."""
        with faults_of_ours():
            try:
                return self._asking.fold(self.claimed.batch)
            except (InputTooLong, RequestRefused):
                if not self._halve():
                    raise
            try:
                return self._asking.fold(self.claimed.batch)
            except InputTooLong as failure:
                # The next run begins with half of this; one node alone waits until the settings are mended.
                failure.kind = "too_long" if len(self.claimed.batch) > 1 else failure.kind
                raise

    def _halve(self) -> bool:
        """Go on with the first half of the batch, if there is one and a call left to ask about it; say whether."""
        batch = self.claimed.batch
        if len(batch) < 2 or self._asking.calls_left < 1:
            return False
        smaller = replace(self.claimed, batch=batch[: len(batch) // 2])
        in_transaction(self._engine, lambda connection: runs.shrink(connection, smaller, smaller.batch))
        self.claimed = smaller
        self._halved(smaller)
        return True


def extract_fold(batch: tuple[SummaryNode, ...], max_tokens: int, *, degraded: bool = False) -> Fold:
    """Return the extract of a batch as what a run made.

    Raises:
        ContentFailure: it must not be stored: it is not smaller than a single short node, say.
    """
    summary, secrets = remove_secrets(extract(batch, max_tokens))
    check_summary(summary, batch, max_tokens)
    fidelity = measure(summary, batch, secrets).as_json()
    return Fold(summary, EXTRACT, EXTRACT_VERSION, COMPACTION_LEVEL, degraded=degraded, fidelity=fidelity)


@contextmanager
def faults_of_ours() -> Iterator[None]:
    """Turn what nobody foresaw into a failure of the run, which is recorded like any other.

    It may be a fault of ours, or of a client that was passed in. It is told by type and place alone, since its message may
    quote the conversation.

    Raises:
        TransientFailure: in place of what was raised.
    """
    try:
        yield
    except (FoldFailed, LostLease):
        raise
    except StorageError as error:
        raise _ours(str(error)) from None
    except Exception as error:  # noqa: BLE001
        place = extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        raise _ours(f"internal error: {type(error).__name__} at {where}") from None


def _ours(error: str) -> TransientFailure:
    """Return a failure that tells nothing of the model's server."""
    failure = TransientFailure(error)
    failure.blame = "nobody"
    return failure
