"""A terminal to run commands on, and text that must not reach it as it is."""

import os
import pty
import re
import subprocess

from tests.support.processes import clean_environ

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07one\r\ntwo\x00\x08\x9b31m\u202ethree\u2066\u200e\u2028four\u2029\ufeff\U000e0041 five\x7f"
)
HOSTILE_ID = "s\x1b[31m\u202e\n"
FORBIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)


def on_terminal(command: list[str], environ: dict[str, str]) -> str:
    """Return what the command shows on a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        command,
        env=clean_environ(environ | {"LANG": "C.UTF-8", "TERM": "xterm"}),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    ) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                piece = os.read(master, 65_536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            shown += piece
        assert process.wait(20) == 0
    os.close(master)
    return shown.decode().replace("\r\n", "\n")
