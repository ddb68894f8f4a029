"""An image without a container engine: the instructions of a Dockerfile carried out in an overlay of this machine, and
programs started in it with what a container has of its own (root, user, network, read-only files).

The machine stands for the base image. Needs root, overlayfs and iproute2; ``missing()`` says what is not there.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import Process, process, wait_until
from tests.support.servers import dies_with_us

BASE_ENVIRON = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def missing() -> str | None:
    """Say what such an image needs and this machine lacks."""
    if os.geteuid() != 0:
        return "root"
    if lacking := [name for name in ("ip", "nsenter", "unshare", "setpriv", "chroot") if not shutil.which(name)]:
        return ", ".join(lacking)
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "overlayfs"
    return None


@dataclass
class Image:
    """What a Dockerfile made: a root directory, seen by those who enter the mounts of ``holder``."""

    holder: int
    root: Path
    environ: dict[str, str] = field(default_factory=lambda: dict(BASE_ENVIRON))
    directory: str = "/"
    user: str = "0:0"
    command: list[str] = field(default_factory=list)

    def entering(self, *namespaces: str) -> list[str]:
        return ["nsenter", f"--target={self.holder}", "--mount", *namespaces]

    def run(self, command: Sequence[str], environ: Mapping[str, str], *, user: str, directory: str) -> None:
        """Run a command in the image while it is built, where it may be written."""
        chroot = ["chroot", f"--userspec={user}", str(self.root), *_alone(command, environ, directory)]
        done = subprocess.run([*self.entering(), *chroot], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def start(
        self, command: Sequence[str], environ: Mapping[str, str], log: Path, *, network: str, mounts: Sequence[str]
    ) -> Iterator[Process]:
        """Start a container's process: its own mounts, all read-only but ``mounts``, no privilege, the given network.

        Args:
            command: what is run.
            environ: the environment, beside the image's own.
            log: where its output goes.
            network: the name of its network namespace.
            mounts: lines of a shell, which mount what is the container's own; ``$ROOT`` is the image.
        """
        user, group = self.user.split(":")
        unprivileged = [
            "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all", *dies_with_us("KILL")[1:],
        ]  # fmt: skip
        own = "\n".join(["set -e", *mounts, 'mount -o remount,ro,bind "$ROOT"', 'exec chroot "$ROOT" "$@"'])
        alone = _alone(command, {**self.environ, **environ}, self.directory)
        entering = self.entering(f"--net=/run/netns/{network}")
        isolated = ["unshare", "--mount", "env", f"ROOT={self.root}", "sh", "-c", own, "sh"]
        with process([*entering, *isolated, *unprivileged, *alone], {}, log) as running:
            yield running

    def inside(self, running: Process, command: Sequence[str], environ: Mapping[str, str]) -> list[str]:
        """Return a command that runs another one beside a container's process, as ``docker exec`` does."""
        user, group = self.user.split(":")
        target = f"--target={running.popen.pid}"
        entering = ["nsenter", target, "--mount", "--net", "--root", f"--setuid={user}", f"--setgid={group}"]
        return [*entering, *_alone(command, {**self.environ, **environ}, self.directory)]


def _alone(command: Sequence[str], environ: Mapping[str, str], directory: str) -> list[str]:
    """Return a command that runs another one in a directory, with that environment and no more."""
    variables = [f"{name}={value}" for name, value in environ.items()]
    return ["env", "-i", *variables, "sh", "-c", 'cd "$0" && exec "$@"', directory, *command]


@contextmanager
def built(dockerfile: Path, context: Path, builder: str) -> Iterator[Image]:
    """Carry out a Dockerfile and give the image of its last stage.

    The commands of stages that are only copied from are run as ``builder`` (``uid:gid``), to whom the copied files are
    read-only: a build that needs more fails here.
    """
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mneme-test-image-")))
        held = ["unshare", "--mount", "--propagation=private", "sh", "-c"]
        mounted = base / "mounted"
        mounting = f"mount -t tmpfs tmpfs {base} && touch {mounted} && exec sleep infinity"
        holder = stack.enter_context(process([*held, mounting], {}, base.with_suffix(".log")))
        stack.callback(base.with_suffix(".log").unlink)
        seen = Path(f"/proc/{holder.popen.pid}/root{mounted}")
        wait_until(seen.exists, 10, "the mounts of the image")
        stages: dict[str, Image] = {}
        image: Image | None = None
        for word, rest in instructions(dockerfile.read_text()):
            if word == "FROM":
                name = rest.partition(" AS ")[2] or "last"
                image = stages[name] = _stage(holder.popen.pid, base / name)
            assert image is not None
            _carry_out(image, word, rest, context, stages, builder)
        assert image is not None
        yield image


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Give each instruction of a Dockerfile, with continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, rest = line.partition(" ")
        yield word, rest.strip()


def _stage(holder: int, directory: Path) -> Image:
    """Return an image that is this machine, without a mneme of its own, and with changes that nobody else sees."""
    root = directory / "root"
    script = f"""
        set -e
        mkdir -p {directory}/upper {directory}/work {root}
        mount -t overlay overlay -o lowerdir=/,upperdir={directory}/upper,workdir={directory}/work {root}
        mount --rbind /dev {root}/dev
        mount -t proc proc {root}/proc
        mount -t tmpfs -o mode=1777 tmpfs {root}/tmp
        rm -rf {root}/opt/mneme {root}/etc/mneme
    """
    subprocess.run(["nsenter", f"--target={holder}", "--mount", "sh", "-c", script], check=True)
    return Image(holder, root)


def _carry_out(image: Image, word: str, rest: str, context: Path, stages: Mapping[str, Image], builder: str) -> None:
    if word == "WORKDIR":
        image.run(["mkdir", "-p", rest], image.environ, user="0:0", directory="/")
        image.directory = rest
    elif word == "ENV":
        for name, value in re.findall(r"(\w+)=(\S+)", rest):
            image.environ[name] = value.replace("$PATH", image.environ["PATH"])
    elif word == "USER":
        image.user = rest
    elif word == "CMD":
        image.command = json.loads(rest)
    elif word == "COPY":
        _copy(image, rest.split(), context, stages)
    elif word == "RUN" and image is stages.get("last"):
        image.run(["sh", "-c", rest], image.environ, user="0:0", directory=image.directory)
    elif word == "RUN":
        image.run(["chown", builder, "/opt"], image.environ, user="0:0", directory="/")
        # How this machine reaches its packages is the machine's, as it is the host's where an image is built.
        packages = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        environ = {**image.environ, **packages, "HOME": "/tmp"}
        image.run(["sh", "-c", rest], environ, user=builder, directory=image.directory)
    else:
        assert word in ("FROM", "STOPSIGNAL"), f"{word} is not known here"


def _copy(image: Image, words: list[str], context: Path, stages: Mapping[str, Image]) -> None:
    """Copy files into the image, as root's, from the checkout or from another stage."""
    *sources, target = [word for word in words if not word.startswith("--from=")]
    stage = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
    place = image.root / (target if target.startswith("/") else f"{image.directory}/{target}").lstrip("/")
    origin = stages[stage].root if stage else context
    for source in sources:
        # What is left out of an image lies beside the Dockerfile; of it, only this stands in the copied directories.
        copying = f"cp -R --no-preserve=ownership {origin}/{source.lstrip('/')} {place} && find {place} -name __pycache__ -prune -exec rm -r {{}} +"
        keeping = f"cp -a {origin}/{source.lstrip('/')} {place}"
        subprocess.run([*image.entering(), "sh", "-c", keeping if stage else copying], check=True)
