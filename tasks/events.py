"""Log lines as events: what happened and its fields, for a person as text and for a program as they are.

A logging handler that knows nothing of it prints ``fold ends: session=s-1 run=... outcome=folded``; one that does (see
``worker.logs``) gets the fields by themselves. The idea is that of structured messages in the standard library's logging
cookbook. The ids of the job stand on every line within it, whoever writes it, by structlog's context variables.
"""

from structlog.contextvars import bound_contextvars

from models.text import clean_text

within = bound_contextvars
"""A context whose every log line carries the ids given: ``with within(session="s-1"): ...``."""


class Event:
    """A message for a logger: ``logger.info(Event("fold ends", outcome="folded"))``.

    Never give it a text from a conversation.
    """

    __slots__ = ("fields", "what")

    def __init__(self, what: str, **fields: object) -> None:
        self.what = what
        self.fields = {key: _plain(value) for key, value in fields.items()}

    def __str__(self) -> str:
        """Return what happened with its fields, as a handler prints it that knows nothing of events."""
        said = " ".join(f"{key}={value}" for key, value in self.fields.items())
        return f"{self.what}: {said}" if said else self.what


def _plain(value: object) -> object:
    # An error of a client that was passed in may hold what no log file takes.
    return value if value is None or isinstance(value, int | float) else clean_text(str(value))
