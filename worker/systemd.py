"""What systemd is told of a service of ``Type=notify``: that it is ready, and that its loop still turns.

The protocol is a datagram to the socket that ``NOTIFY_SOCKET`` names (sd_notify(3)); nothing is sent where systemd is not.
"""

import os
import socket


def tell_systemd() -> None:
    """Say READY and WATCHDOG; the former counts once, the latter each time.

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
            notify.send(b"READY=1\nWATCHDOG=1")
        except OSError:
            return
