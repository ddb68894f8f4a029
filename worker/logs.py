"""The log of worker, beat and the server of metrics: one line an event, JSON in production, readable on a terminal.

Celery's lines and those of every other library pass through the same formatter, and get the ids of the task during which they
were written.
"""

import json
import logging
import logging.handlers
import os
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from celery import signals
from celery._state import get_current_task
from celery.app.trace import LOG_FAILURE, LOG_RECEIVED, LOG_SUCCESS
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from models import errors
from models.settings import Settings, get_settings
from models.urls import passwords
from tasks.broker import JOB
from tasks.events import Event
from worker.exits import or_exit

SHORTEST_SECRET = 6
"""What is shorter would be found in every other word."""


def connect() -> None:
    """Have Celery leave the set-up of logging to ``set_up``."""
    signals.setup_logging.connect(set_up, weak=False)


def set_up(loglevel: int | None = None, logfile: str | None = None, **_: Any) -> None:
    """Send every log line of this process to ``logfile``, or stderr, in the format of ``worker.log_format``.

    Args:
        loglevel: the least that is told; from *debug* on also what Celery says of each message.
        logfile: a path; a file that was moved away is opened anew.
    """
    settings = or_exit(get_settings)
    wanted = settings.worker.log_format
    handler = or_exit(lambda: _handler(logfile))
    terminal = not logfile and sys.stderr.isatty()
    as_json = wanted == "json" or (wanted == "auto" and not terminal)
    handler.setFormatter(Formatter(as_json=as_json, colors=terminal, secrets=known_secrets(settings, os.environ)))
    level = loglevel or logging.INFO
    if level > logging.DEBUG:
        handler.addFilter(_is_news)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _handler(logfile: str | None) -> logging.Handler:
    if not logfile:
        return logging.StreamHandler(sys.stderr)
    try:
        return logging.handlers.WatchedFileHandler(logfile, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise errors.SettingsError(f"the log file {logfile} cannot be written: {error.strerror}") from None


def known_secrets(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    """Return every secret that this process was given: its key, the passwords of its URLs, the values of its headers."""
    urls = (settings.database.url, settings.broker.url, settings.llm.base_url)
    found = {environ.get("OPENAI_API_KEY", ""), *settings.llm.headers.values()}
    return frozenset(found.union(*(passwords(url) for url in urls if url)))


class Formatter(ProcessorFormatter):
    """Makes a line of a record.

    Args:
        as_json: one object a line; else for a person's eyes.
        colors: only for a terminal.
        secrets: what no line may hold, wherever it came from; asterisks stand in its place.
    """

    def __init__(self, *, as_json: bool, colors: bool = False, secrets: frozenset[str] = frozenset()) -> None:
        # Tracebacks as text: as structure they would hold the values of variables, and so conversations.
        ending: list[Processor]
        if as_json:
            ending = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
        else:
            ending = [ConsoleRenderer(colors=colors, exception_formatter=plain_traceback, sort_keys=False)]
        super().__init__(
            foreign_pre_chain=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                _add_task,
                _add_fields,
            ],
            processors=[ProcessorFormatter.remove_processors_meta, _in_order, *ending],
        )
        found = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        self._secrets = sorted(found | {json.dumps(secret)[1:-1] for secret in found}, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = super().format(record)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


def _is_news(record: logging.LogRecord) -> bool:
    """Leave out what Celery says of every message, and of a failed job, of which the job has said more."""
    said = str(record.msg)
    if said.startswith("Couldn't ack"):
        # The job is done, its message comes again, and finds that out: nobody need be called for it.
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
    if said in (LOG_RECEIVED, LOG_SUCCESS) or said.startswith("Scheduler: Sending due task"):
        return False
    if said == LOG_FAILURE.strip() and record.levelno == logging.INFO:
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        failed = getattr(record, "data", {})
        raised = getattr(errors, str(failed.get("exc")).partition("(")[0], None)
        return not (failed.get("name") == JOB and isinstance(raised, type) and issubclass(raised, errors.FoldFailed))
    return True


def _add_task(_: Any, __: str, line: EventDict) -> EventDict:
    task = get_current_task()
    if task is not None and task.request.id:
        line["task"], line["task_name"] = task.request.id, task.name
        if task.name == JOB:
            named = [*(task.request.args or ()), (task.request.kwargs or {}).get("session_id")]
            line.setdefault("session", str(named[0]))
    return line


def _add_fields(_: Any, __: str, line: EventDict) -> EventDict:
    said = line["_record"].msg
    if isinstance(said, Event):
        line["event"] = said.what
        line.update(said.fields)
    return line


def _in_order(_: Any, __: str, line: EventDict) -> EventDict:
    """Put first what is read first; and an event on one line, whatever Celery put into it."""
    first = {
        "timestamp": line["timestamp"],
        "level": line["level"],
        "event": " ".join(str(line["event"]).split("\n")).strip(),
    }
    return first | {key: value for key, value in line.items() if key not in first}
