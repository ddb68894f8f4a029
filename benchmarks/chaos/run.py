"""One run: write and break for a while, let everything settle, and judge."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos import writers
from benchmarks.chaos.endpoint import Moody
from benchmarks.chaos.schedule import faults, writes
from benchmarks.chaos.stack import WORKERS, Stack
from benchmarks.chaos.verdict import Verdict, is_settled, judge, mneme
from benchmarks.chaos.writers import Ledger
from models import StorageError, make_engine
from tests.support.model_server import ModelServer, model_server

WRITERS = 4
RETRY_EVERY_SECONDS = 15.0
TELL_EVERY_SECONDS = 10.0
SETTLE_SECONDS = 240.0


@dataclass(frozen=True)
class Plan:
    """What a run is made of; ``seconds`` is for how long things go wrong."""

    seed: int
    seconds: float
    snapshots: int
    sessions: int
    fault_every_seconds: float = 4.0


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    verdict: Verdict
    ledger: Ledger
    calls: int
    settle_seconds: float
    injected: Counter[str]
    ended_by_themselves: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether everything was written, the verdict is good, and no worker or beat ended that nobody had ended."""
        return self.verdict.holds and len(self.ledger.written) == self.plan.snapshots and not self.ended_by_themselves

    def __str__(self) -> str:
        """Return the lines to be printed."""
        verdict, ledger = self.verdict, self.ledger
        wasted = 1 - (verdict.folds + verdict.declined) / self.calls if self.calls else 0.0
        told = ", ".join(f"{kind} {count}" for kind, count in sorted(self.injected.items()))
        return "\n".join(
            (
                f"seed {self.plan.seed}: {self.plan.seconds:.0f} s of faults, {self.plan.sessions} sessions",
                f"snapshots   {len(ledger.written):,} written, {verdict.kept:,} kept byte for byte; {ledger.late:,} came late,"
                f" {ledger.again:,} were written twice, {ledger.refused:,} conflicting ones refused,"
                f" {ledger.attempts_lost:,} attempts lost to faults and made again",
                f"lost        {verdict.lost}",
                f"duplicates  {verdict.duplicates}",
                f"unexpected  {verdict.unexpected} {'; '.join(ledger.faults[:3])}".rstrip(),
                f"folds       {verdict.folds:,}; runs declined {verdict.declined}, failed {verdict.failed},"
                f" expired {verdict.expired}",
                f"calls       {self.calls:,} of the model, {wasted:.0%} wasted",
                f"settled     {self.settle_seconds:.0f} s after the last fault{' (NOT settled)' if verdict.unsettled else ''}",
                f"doctor      {'clean' if verdict.clean else 'NOT clean'}",
                f"ended by themselves: {', '.join(self.ended_by_themselves) or 'no worker and no beat'}",
                f"faults      {sum(self.injected.values())}: {told}",
            )
        )


def chaos(plan: Plan, directory: Path, sockets: Path, tell: Callable[[str], None]) -> Outcome:
    """Run a plan in a directory. From the main thread."""
    moody = Moody(plan.seed)
    with model_server() as server:
        server.answer = moody.answer
        stack = Stack(directory, sockets, server.url)
        try:
            stack.start()
            running, ledger = writers.start(
                stack.settings, writes(plan.seed, plan.snapshots, plan.sessions, WRITERS), plan.seconds
            )
            _break(plan, stack, server, ledger, tell)
            moody.always_sound = True
            stack.calm_down()
            took = _settle(stack, running, tell)
            engine = make_engine(stack.settings.require_database_url(), pooled=False)
            verdict = judge(engine, stack.settings, stack.environ, ledger)
            return Outcome(
                plan, verdict, ledger, len(server.calls), took, stack.injected, tuple(stack.ended_by_themselves)
            )
        finally:
            stack.stop()


def _break(plan: Plan, stack: Stack, server: ModelServer, ledger: Ledger, tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    due = faults(plan.seed, plan.seconds, plan.fault_every_seconds, WORKERS)
    told = retried = began
    while (now := time.monotonic()) < began + plan.seconds or due:
        while due and due[0].at_seconds <= now - began:
            stack.inject(due.pop(0))
        stack.look_after()
        if now - told > TELL_EVERY_SECONDS:
            told = now
            done = f"{len(ledger.written):,} written, {len(server.calls):,} calls, {stack.injected.total()} faults"
            tell(f"{now - began:4.0f} s  {done}")
        if now - retried > RETRY_EVERY_SECONDS:
            # Waits of minutes after a failure are for the field; whoever is on call would do this.
            retried = now
            mneme(stack.environ, "retry", "--all")
        time.sleep(0.1)


def _settle(stack: Stack, running: list[writers.Writer], tell: Callable[[str], None]) -> float:
    """Wait until everything is written and nothing is due; return how long that took, at most ``SETTLE_SECONDS``."""
    began = time.monotonic()
    engine = make_engine(stack.settings.require_database_url(), pooled=False)
    retried = began - RETRY_EVERY_SECONDS
    while time.monotonic() < began + SETTLE_SECONDS:
        stack.look_after()
        if time.monotonic() - retried > RETRY_EVERY_SECONDS:
            retried = time.monotonic()
            tell(f"settling for {retried - began:.0f} s")
            mneme(stack.environ, "retry", "--all")
        try:
            if not any(writer.is_alive() for writer in running) and is_settled(engine, stack.settings):
                break
        except StorageError:
            pass  # Postgres is on its way back
        time.sleep(0.5)
    return time.monotonic() - began
