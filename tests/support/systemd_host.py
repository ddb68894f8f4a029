"""A host with a systemd of its own: an image booted by systemd-nspawn, in which units are started as on any machine."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import image
from tests.support.image import Image
from tests.support.processes import process, wait_until

CHECKOUT = "/srv/mneme"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# By hand, for what /etc/machine-id and /run hold belongs to this machine.
BOOT = """
set -e
mkdir -p "$PLACE/upper" "$PLACE/work" "$PLACE/tree"
mount -t overlay overlay -o lowerdir="$IMAGE",upperdir="$PLACE/upper",workdir="$PLACE/work" "$PLACE/tree"
mount -t tmpfs tmpfs /run
: >"$PLACE/tree/etc/machine-id"
mkdir -p "$PLACE/tree$CHECKOUT"
exec systemd-nspawn --quiet --directory="$PLACE/tree" --bind-ro="$SOURCE:$CHECKOUT" --boot --machine="$NAME" \
    --register=no --keep-unit --console=pipe systemd.unit=basic.target
"""


def missing() -> str | None:
    """Say what such a host needs and this machine lacks."""
    return image.missing() or (None if shutil.which("systemd-nspawn") else "systemd-nspawn")


@dataclass
class Host:
    """A host that has booted; ``leader`` is its first process, as seen from here."""

    leader: int

    def run(self, script: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a script as root in the checkout on that host."""
        variables = [f"{name}={value}" for name, value in {"PATH": PATH, **(environ or {})}.items()]
        shell = ["env", "-i", *variables, "sh", "-c", f"cd {CHECKOUT}\n{script}"]
        entering = ["nsenter", f"--target={self.leader}", "--all"]
        return subprocess.run([*entering, *shell], capture_output=True, text=True, timeout=120, cwd="/")

    def must(self, script: str, environ: Mapping[str, str] | None = None) -> str:
        """Run a script that has to end well, and return what it said."""
        done = self.run(f"set -e\n{script}", environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def property(self, unit: str, name: str) -> str:
        """Return what systemd knows of a unit."""
        return self.must(f"systemctl show --property={name} --value {unit}").strip()


@contextmanager
def systemd_host(made: Image, network: str, source: Path, log: Path) -> Iterator[Host]:
    """Boot an image, with nothing but systemd itself and this checkout, read-only.

    Args:
        made: what it is booted from; it is not changed.
        network: the name of its network namespace.
        source: the checkout.
        log: where the console goes.
    """
    name = f"mneme-test-{os.getpid()}"
    environ = {
        "IMAGE": str(made.root), "PLACE": str(made.root.parent / "systemd"), "CHECKOUT": CHECKOUT, "SOURCE": str(source), "NAME": name,
    }  # fmt: skip
    with ExitStack() as stack:
        joined = stack.enter_context(_control_group(name))
        entering = [*joined, *made.entering(f"--net=/run/netns/{network}"), "unshare", "--mount"]
        booting = stack.enter_context(process([*entering, "sh", "-c", BOOT], environ, log))
        children = Path(f"/proc/{booting.popen.pid}/task/{booting.popen.pid}/children")

        def leader() -> int | None:
            assert booting.popen.poll() is None, booting.log
            # Not the child that prepares it, which is gone a moment later.
            return next((int(pid) for pid in children.read_text().split() if _program(pid) == "systemd"), None)

        wait_until(leader, 30, "the host's first process")
        host = Host(leader() or 0)
        wait_until(lambda: host.run("systemctl is-system-running").stdout.strip() == "running", 30, "the host to be up")
        yield host


def _program(pid: str) -> str:
    try:
        return Path(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0])).name
    except OSError:
        return ""


@contextmanager
def _control_group(name: str) -> Iterator[list[str]]:
    """Make a control group wherever systemd looks for its own, and give a command that runs another one in it."""
    mounted = Path("/sys/fs/cgroup")
    parents = [path for path in (mounted / "systemd", mounted / "unified", mounted) if (path / "cgroup.procs").exists()]
    groups = [parent / name for parent in parents]
    for group in groups:
        group.mkdir()
    try:
        yield [
            "sh",
            "-c",
            f'for group in {" ".join(map(str, groups))}; do echo $$ >$group/cgroup.procs; done; exec "$@"',
            "sh",
        ]
    finally:
        for group in groups:
            wait_until(lambda group=group: _removed(group), 10, f"{group} to be empty")  # type: ignore[misc]


def _removed(group: Path) -> bool:
    try:
        for path in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            path.rmdir()
        group.rmdir()
    except OSError:
        return False
    return True
