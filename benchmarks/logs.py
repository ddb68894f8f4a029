"""What a log says that it should not: in JSON, as this release writes it, and in Celery's own lines, as earlier ones do."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

_PLAIN = re.compile(r"[:,]\d+: (?P<level>WARNING|ERROR|CRITICAL)/\S+\] (?P<text>.*)")
_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b\d+(\.\d+)?s?\b|'[^']*'")
_ERRORS = ("error", "critical")


def troubles(log: Path) -> Counter[str]:
    """Return the errors of a log, and the tracebacks, each with how often it occurs but for ids and numbers."""
    return _lines(log, _ERRORS)


def warnings(log: Path) -> Counter[str]:
    """Return its warnings, which foretell nothing bad: that a database was away, say."""
    return _lines(log, ("warning",))


def told(logs: Iterable[Path], what: Callable[[Path], Counter[str]]) -> tuple[str, ...]:
    """Return a line for each kind of trouble or warning in each of the logs."""
    return tuple(f"{log.stem}: {line} ({times})" for log in logs for line, times in what(log).items())


def _lines(log: Path, levels: tuple[str, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in log.read_text(errors="replace").splitlines():
        level, told = _read(line)
        if level in levels:
            found[_IDS.sub("*", told)[:160]] += 1
    return found


def _read(line: str) -> tuple[str, str]:
    if line.startswith("{") and line.endswith("}"):
        event = json.loads(line)
        level, error = event.get("level", ""), event.get("error") or ""
        return ("error" if "exception" in event else level), f"{event.get('event')} {error}".strip()
    if plain := _PLAIN.search(line):
        return plain["level"].lower(), plain["text"]
    return ("error", line) if line.startswith("Traceback ") else ("", "")
