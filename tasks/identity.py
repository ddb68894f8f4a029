"""Who a run says is doing it. Nothing is decided by it but what a worker that is shut down releases."""

import os
import secrets
import socket

# Made once, and inherited by forked children: a worker's main process releases what its children had claimed. The
# random part tells apart two containers of the same name and process number.
_WORKER = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def worker_name() -> str:
    """Return the name of this worker: host, process and a random part."""
    return _WORKER
