"""Waiting until there is nothing left to do."""

import time

from sqlalchemy import Engine

from benchmarks.chaos.verdict import is_settled
from models import StorageError
from models.settings import Settings


def settle(engine: Engine, settings: Settings, within_seconds: float) -> float:
    """Wait until nothing is due and nothing runs, at most for so long; return how long it took."""
    began = time.monotonic()
    while (took := time.monotonic() - began) < within_seconds:
        try:
            if is_settled(engine, settings):
                break
        except StorageError:
            pass  # Postgres is on its way back
        time.sleep(0.2)
    return took
