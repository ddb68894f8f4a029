"""What systemd is told of a service of ``Type=notify``: that it is ready, that its loop still turns, what it waits for.

The protocol is a datagram to the socket that ``NOTIFY_SOCKET`` names (sd_notify(3)); nothing is sent where systemd is not.
"""

import os
import socket

TURNING = "READY=1\nWATCHDOG=1"
"""READY counts once, WATCHDOG each time."""
WAITING_FOR_BROKER = f"{TURNING}\nSTATUS=waiting for Redis, the log tells why"
STOPPING = "STOPPING=1\nSTATUS=finishing what it folds, then it ends"


def tell_systemd(state: str) -> None:
    """Send a state: lines of ``NAME=value``.

    A full or missing socket is systemd's matter: it ends the service when it hears nothing for ``WatchdogSec``.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # "@" stands for the NUL with which the name of an abstract socket begins.
    name = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notify:
        try:
            notify.connect(name)
            notify.send(state.encode())
        except OSError:
            return


def tell_status(what: str) -> None:
    """Say in one line what ``systemctl status`` shows beside the service's state."""
    tell_systemd(f"STATUS={' '.join(what.split())}")
