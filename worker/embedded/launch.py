"""Become a program that ends with its parent and, where asked, is not root.

Run as a script, in front of the program: ``python launch.py PARENT_PID SIGNAL as_is|namespace|nobody PROGRAM [ARGUMENT...]``.
Both things must happen in the child: the kernel forgets the parent-death signal when a process changes its user, and a
user namespace cannot be entered on behalf of another process.
"""

import ctypes
import os
import pwd
import signal
import sys

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_SOMEBODY = 1000


def enter_user_namespace() -> None:
    """Become user 1000 in a namespace where that is root outside: no account, no change of owner. Linux only."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        raise SystemExit(f"no user namespace: {os.strerror(ctypes.get_errno())}")
    for name, line in (("setgroups", "deny"), ("uid_map", f"{_SOMEBODY} 0 1"), ("gid_map", f"{_SOMEBODY} 0 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)


def become_nobody() -> None:
    """Become the user nobody, for where namespaces are forbidden; the data directory must be nobody's by then."""
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def end_with_parent(parent: int, number: int) -> None:
    """Have the kernel send a signal when the parent is gone, however it went. Linux only."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it went before we asked
        os._exit(1)


def main() -> None:
    """Do what the arguments say; does not return."""
    parent, signal_name, user, program, *arguments = sys.argv[1:]
    if user == "namespace":
        enter_user_namespace()
    elif user == "nobody":
        become_nobody()
    end_with_parent(int(parent), signal.Signals[signal_name])
    os.execv(program, [program, *arguments])  # noqa: S606 - replaced, not started: no shell is wanted


if __name__ == "__main__":
    main()
