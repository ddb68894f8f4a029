"""Celery's pool of threads, made to survive a cold shutdown.

On SIGQUIT Celery asks the pool to end the job of each active request, and then waits for the pool. Its own pool of
threads raises ``NotImplementedError`` at the first, which ends the worker with a traceback (Celery 5.7). A thread cannot
be killed, but what it waits for can be cut off.
"""

from celery.concurrency.thread import TaskPool as CeleryTaskPool
from celery.utils import log

from worker.lifecycle import let_go


class TaskPool(CeleryTaskPool):
    """A pool of threads, one for each fold at once."""

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Let go of everything that runs in this process, when it is being shut down.

        Raises:
            NotImplementedError: outside a shutdown, when somebody asks for the end of one job (Flower's *Terminate*): a
                thread cannot be ended, and the others are not to be ended for it.
        """
        # Celery sets its own flag only after this; that a signal is being handled is what tells the two apart.
        if getattr(log, "_in_sighandler", False):
            let_go()
        else:
            super().terminate_job(pid, signal)
