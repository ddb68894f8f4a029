"""Ending a process on what its user can mend: one sentence on standard error, the right exit code, no traceback."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from models.errors import MnemeError

T = TypeVar("T")

NEGATIVE = 1
WRONG_USAGE = 2
INTERRUPTED = 130


def exit_code(error: "MnemeError") -> int:
    """Return 2 for what has to be configured otherwise, 1 for everything else."""
    from models.errors import SchemaError, SettingsError

    return WRONG_USAGE if isinstance(error, SettingsError | SchemaError) else NEGATIVE


def or_exit(action: Callable[[], T]) -> T:
    """Return what the action returns, or end the process when it raises an error of ours."""
    from models.errors import MnemeError  # here, so that the command's --help need not load the database's drivers

    try:
        return action()
    except MnemeError as error:
        sys.stderr.write(f"mneme: {error}\n")
        raise SystemExit(exit_code(error)) from None
