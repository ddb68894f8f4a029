"""What follows when a model has no usable answer, run after run: the extract, marked as what it is, or a dismissal.

One batch must not block everything behind it for ever. The extract keeps it readable and out of the way; it is not folded
further, and redone when the model has a sound answer (see ``repair``).
"""

from sqlalchemy import Engine

from models.errors import ContentFailure
from models.runs import Claim, Fold, Usage
from models.settings import Settings
from tasks import ending
from tasks.answers import Declined
from tasks.ending import Ended
from tasks.work import extract_fold


def is_due(claimed: Claim, settings: Settings) -> bool:
    """Say whether the run of this claim, should its answers be unusable too, is the last that is tried."""
    return claimed.content_failures + 1 >= settings.mneme.content_attempts


def end(
    engine: Engine, settings: Settings, claimed: Claim, failure: ContentFailure, usage: Usage
) -> tuple[Fold | Declined, Ended]:
    """Write the extract in place of an answer, or with ``fallback = "none"`` dismiss the batch; return what was written.

    Raises:
        TransientFailure: the database did not take it.
    """
    stands_in = _extract(claimed, settings) or Declined()
    return stands_in, ending.commit(engine, settings, claimed, stands_in, usage, instead_of=failure)


def _extract(claimed: Claim, settings: Settings) -> Fold | None:
    if settings.mneme.fallback != "extract":
        return None
    try:
        return extract_fold(claimed.batch, settings.mneme.max_tokens, degraded=True)
    except ContentFailure:
        return None  # so short that not even its first words are shorter
