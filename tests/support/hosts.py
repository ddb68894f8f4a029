"""Hosts of the tests' own on this machine: a network namespace each, joined by a bridge that reaches nothing else."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def hosts(names: Sequence[str]) -> Iterator[dict[str, tuple[str, str]]]:
    """Give for each name its network namespace and its address; this machine reaches them, they reach one another."""
    tag = f"mt{os.getpid()}"
    # Of the range that is set aside for such benchmarks (RFC 2544), so that it is nobody's network.
    network = f"198.18.{os.getpid() % 250}"
    with ExitStack() as stack:
        _ip("link", "add", tag, "type", "bridge")
        stack.callback(_ip, "link", "del", tag)
        _ip("address", "add", f"{network}.1/24", "dev", tag)
        _ip("link", "set", tag, "up")
        made = {}
        for number, name in enumerate(names, 2):
            namespace, inner = f"{tag}-{name}", f"{tag}i{number}"
            _ip("netns", "add", namespace)
            stack.callback(_ip, "netns", "del", namespace)
            _ip("link", "add", f"{tag}o{number}", "type", "veth", "peer", "name", inner, "netns", namespace)
            _ip("link", "set", f"{tag}o{number}", "master", tag, "up")
            _ip("-n", namespace, "address", "add", f"{network}.{number}/24", "dev", inner)
            _ip("-n", namespace, "link", "set", inner, "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
            made[name] = (namespace, f"{network}.{number}")
        yield made
