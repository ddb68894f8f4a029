"""The Celery tasks. What they do is in ``runner`` and ``sweep``; here stands only how Celery is told of it."""

from celery import shared_task

from models.errors import MnemeError
from tasks.broker import DOCTOR, JOB, REPAIR, RETENTION, SWEEP
from tasks.identity import worker_name
from tasks.repair import repair
from tasks.runner import L2Runner
from tasks.sweep import sweep
from tasks.upkeep import examination, retention


# An error of ours is a result, recorded and to be shown in one line; only what nobody foresaw is logged with a traceback.
@shared_task(name=JOB, throws=(MnemeError,))
def job(session_id: str) -> dict[str, object]:
    """Fold a session once, if it is due; returns what came of it.

    Raises:
        FoldFailed: the attempt failed, after it was recorded.
    """
    return L2Runner(session_id).run().as_result()


@shared_task(name=SWEEP, throws=(MnemeError,))
def sweep_task() -> dict[str, object]:
    """Find in the rows what is due and enqueue it; returns how much."""
    return sweep(by=worker_name()).as_result()


@shared_task(name=REPAIR, throws=(MnemeError,))
def repair_task() -> dict[str, object]:
    """Redo extracts that stand in place of a model's answer; returns how many, and why it stopped."""
    return repair().as_result()


@shared_task(name=RETENTION, throws=(MnemeError,))
def retention_task() -> dict[str, object]:
    """Forget old runs; returns how many."""
    return retention()


@shared_task(name=DOCTOR, throws=(MnemeError,))
def doctor_task() -> dict[str, object]:
    """Have the doctor judge every row; returns the names of the rules that are broken."""
    return examination()
