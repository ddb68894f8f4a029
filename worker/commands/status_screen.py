"""The screen of ``mneme status``: a line for each thing, and below each problem its remedy."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.tables import time_of
from worker.terminal import typed, visible

if TYPE_CHECKING:
    from models.presence import WorkerSeen
    from models.settings import Settings
    from models.status import Breaker, Degraded, Dismissed, Status, Waiting

_MOST_NAMED = 3

_GIVEN_UP = {
    "crashes": "killed its worker each time: look for what is odd in its text",
    "too_large": "longer than the model's window: llm.context_window, or a larger model",
    "content": "no usable answer for it: try another model",
}


@dataclass(frozen=True)
class Queue:
    """How many messages wait in the broker's queue; or why that is not known."""

    messages: int | None = None
    error: str | None = None


def render(found: "Status", settings: "Settings", queue: Queue) -> Iterator[str]:
    """Return the lines of the screen, safe for a terminal."""
    from models.status import Waiting

    none = Waiting()
    due, held = found.waiting.get("due", none), found.waiting.get("held", none)
    late_seconds = settings.schedules.grace_seconds + settings.schedules.requeue_seconds
    yield _line("due", _sessions(due), f"the first since {time_of(due.waiting_seconds)}" if due.sessions else "")
    idle = not found.running and (found.ended_seconds is None or found.ended_seconds > late_seconds)
    if due.waiting_seconds > late_seconds and idle:
        yield _remedy(
            f"nobody takes them ({_names(due)}): is a worker running, on this broker? And beat? And has this command their"
            " settings (mneme config)?"
        )
    yield _line("running", f"{found.running} folds")
    if found.dead:
        yield _line("", f"{found.dead} more with a lease that has passed: the next sweep closes them")
    yield from _backing_off(found)
    yield from _paused(found)
    yield from _held(held, settings)
    for breaker in found.breakers:
        yield from _breaker(breaker)
    yield _line("oldest", _oldest(found))
    for dismissed in found.dismissed:
        yield from _dismissed(dismissed)
    yield from _degraded(found.degraded, settings)
    yield from _spent(found, settings)
    yield from _doctor(found)
    yield from _alive(found, settings, queue)
    yield _line("schema", visible(found.service.schema))


def _backing_off(found: "Status") -> Iterator[str]:
    runs = sum(kind.runs for kind in found.backing_off)
    yield _line("backing off", f"{runs} runs")
    for kind in found.backing_off:
        yield _line("", f"{kind.runs} {kind.kind}: {visible(kind.error or 'no error was recorded')}")
    if runs:
        longest = max(kind.longest_seconds for kind in found.backing_off)
        yield _remedy(
            f"they are tried again by themselves within {time_of(longest)}; now: mneme retry SESSION, or --all"
        )


def _paused(found: "Status") -> Iterator[str]:
    from models.status import Waiting

    waiting, service = found.waiting.get("paused", Waiting()), found.service
    if service.paused:
        yield _line("paused", "EVERYTHING", _sessions(waiting))
        yield _remedy("mneme resume --all")
        return
    yield _line("paused", _sessions(waiting))
    if service.paused_sessions:
        yield _remedy(
            f"{service.paused_sessions} are paused by name ({_names(waiting) or 'none of them due'}): mneme resume SESSION"
        )


def _alive(found: "Status", settings: "Settings", queue: Queue) -> Iterator[str]:
    """Tell whether beat, broker and a worker are alive: all three are needed for a sweep."""
    service, late_seconds = found.service, 3 * settings.schedules.sweep_seconds + 30
    alive = [worker for worker in found.workers if worker.alive]
    yield from _workers(found, alive)
    if service.swept_seconds is None:
        yield _line("swept", "never")
    else:
        yield _line("swept", f"{time_of(service.swept_seconds)} ago", f"by {visible(service.swept_by or '')}")
    yield _line("queue", f"{queue.messages} messages" if queue.error is None else visible(queue.error))
    if queue.error is not None:
        yield _remedy(
            "see that the broker answers at REDIS_URL, with its password, and that worker, beat and apps have the same;"
            " no work is lost meanwhile"
        )
    if not alive:
        yield _remedy(
            "no worker is there: celery -A worker worker, on this database and broker; and celery -A worker beat"
        )
    elif service.swept_seconds is not None and service.swept_seconds <= late_seconds:
        return
    elif queue.messages:
        yield _remedy("messages wait and no worker takes them: celery -A worker worker, on this broker")
    elif queue.error is None:
        yield _remedy("no sweep is sent: celery -A worker beat, on this broker")


def _workers(found: "Status", alive: "list[WorkerSeen]") -> Iterator[str]:
    from models.presence import NOTE_EVERY_SECONDS

    slots = f"{sum(worker.slots for worker in alive)} folds at once" if alive else ""
    late = [worker for worker in alive if worker.seen_seconds > 2 * NOTE_EVERY_SECONDS]
    releases = sorted({worker.release for worker in alive})
    yield _line(
        "workers", f"{len(alive)} alive", slots, f"of releases {', '.join(releases)}" if len(releases) > 1 else ""
    )
    for worker in late[:_MOST_NAMED]:
        yield _line("", f"{visible(worker.name)} was last seen {time_of(worker.seen_seconds)} ago: it may be gone")
    gone = [worker for worker in found.workers if not worker.alive]
    for worker in gone[:_MOST_NAMED]:
        yield _line("", f"{visible(worker.name)} was killed or cut off, last seen {time_of(worker.seen_seconds)} ago")
    if len(gone) > _MOST_NAMED:
        yield _line("", f"and {len(gone) - _MOST_NAMED} more within a day")
    if gone:
        yield _remedy(
            "what they were folding is folded by others once its lease has passed; start new ones if you need them"
        )


def _doctor(found: "Status") -> Iterator[str]:
    service = found.service
    if service.examined_seconds is None:
        yield _line("doctor", "not yet sent for")
        return
    ago = f"{time_of(service.examined_seconds)} ago"
    if not service.broken_rules:
        yield _line("doctor", "clean", ago)
        return
    rules = ", ".join(service.broken_rules)
    yield _line(
        "doctor", f"{len(service.broken_rules)} rules BROKEN ({visible(rules)}), {service.violations:,} violations", ago
    )
    yield _remedy("which rows, and what to do: mneme doctor")


def _held(held: "Waiting", settings: "Settings") -> Iterator[str]:
    if held.cap is None:
        yield _line("held", _sessions(held), "by the breaker" if held.sessions else "")
        return
    yield _line("held", _sessions(held), f"by spend.{held.cap}, {getattr(settings.spend, held.cap):,}")
    yield _remedy("they go on by themselves as the window moves; at once: raise the cap, for every worker")


def _spent(found: "Status", settings: "Settings") -> Iterator[str]:
    spent, spend = found.spent, settings.spend
    for name, folds, prompt, completion, cap in (
        ("last hour", spent.hour_folds, spent.hour_prompt_tokens, spent.hour_completion_tokens, spend.tokens_per_hour),
        ("last day", spent.day_folds, spent.day_prompt_tokens, spent.day_completion_tokens, spend.tokens_per_day),
    ):
        cost = (prompt * spend.prompt_price + completion * spend.completion_price) / 1_000_000
        tokens = f"{prompt:,} + {completion:,} tokens"
        yield _line(
            name, f"{folds:,} folds", tokens, f"of {cap:,} allowed" if cap else "", f"cost {cost:,.2f}" if cost else ""
        )


def _breaker(breaker: "Breaker") -> Iterator[str]:
    who = f"{visible(breaker.model)} at {visible(breaker.base_url)}"
    if not breaker.ours:
        who += " (not what these settings ask)"
    if not breaker.open:
        yield _line("breaker", f"closed; {breaker.failures} failures in a row: {who}")
        return
    left = breaker.seconds_left or 0.0
    state = "one call is trying" if breaker.probing else "the next call tries"
    yield _line("breaker", f"OPEN: {who}: {f'all calls on hold for {time_of(left)}' if left > 0 else state}")
    yield _line("", visible(breaker.error or ""))
    yield _remedy(
        "mend that (a key or another setting: of every worker, then restart it), and it closes by itself when its time is up;"
        " at once: mneme retry --all"
    )


def _dismissed(dismissed: "Dismissed") -> Iterator[str]:
    yield _line("dismissed", f"{dismissed.nodes} {dismissed.reason}")
    if dismissed.reason not in _GIVEN_UP:
        return
    for node, session in dismissed.first:
        yield _line("", f"node {node} of session {typed(session)}")
    yield _remedy(f"{_GIVEN_UP[dismissed.reason]}; then mneme retry SESSION")


def _degraded(degraded: "Degraded", settings: "Settings") -> Iterator[str]:
    if not degraded.nodes:
        return
    yield _line("degraded", f"{degraded.nodes} extracts in place of a model's answer")
    for node, session in degraded.first:
        yield _line("", f"node {node} of session {typed(session)}")
    by_itself = (
        "redone by themselves, a few at a time; now" if settings.schedules.repair_tokens_per_day else "redo them"
    )
    yield _remedy(f"{by_itself}: mneme repair")


def _line(name: str, *told: str) -> str:
    return f"{name:<12}{', '.join(part for part in told if part)}".rstrip()


def _remedy(what: str) -> str:
    return f"{'':<12}-> {what}"


def _sessions(waiting: "Waiting") -> str:
    return f"{waiting.sessions:,} sessions, {waiting.nodes:,} nodes" if waiting.sessions else "0 sessions"


def _names(waiting: "Waiting") -> str:
    return ", ".join(typed(session) for session in waiting.first)


def _oldest(found: "Status") -> str:
    ages = [waiting.oldest_seconds for waiting in found.waiting.values()]
    return f"uncovered node of a session that is due: {time_of(max(ages))}" if ages else "nothing is due"
