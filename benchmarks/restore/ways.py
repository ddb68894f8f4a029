"""Restoring where things are not as they were: each on a database of its own, where no worker is."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.restore.commands import restore
from benchmarks.restore.rights import functions_of_everybody
from benchmarks.services import Services
from models import make_engine, migrate
from models.urls import database_url

MADE_FOR_EVERYBODY = 1
"""The trigger's function of migration 0003, which came after 0001 took that right away; it can do nothing by itself."""


@dataclass(frozen=True)
class Way:
    """What was tried, what came of it, and whether that is what docs/upgrading.md says."""

    name: str
    came: str
    as_told: bool


def ways_without_the_app(services: Services, backup: Path, owner: str, app: str) -> Iterator[Way]:
    """Try those for a cluster that does not know the role ``app``."""
    missing = _Try(services, "missing", owner)
    said = missing.restore(backup)
    refused = f'role "{app}" does not exist' in said and not missing.has_schema
    yield Way("the app's role is missing", "refused, nothing is left of it" if refused else said, refused)

    said = missing.restore(backup, "--no-privileges")
    everybody = 0 if said else functions_of_everybody(missing.url)
    came = said or f"restored; {everybody} functions may be executed by every role that may use the schema"
    yield Way("with --no-privileges", came, everybody > MADE_FOR_EVERYBODY)


def other_ways(services: Services, backup: Path, owner: str, app: str) -> Iterator[Way]:
    """Try those for a cluster that has both roles."""
    there = _Try(services, "there", owner)
    engine = make_engine(database_url(there.url), pooled=False)
    migrate(engine)
    said = there.restore(backup)
    refused = 'schema "mneme" already exists' in said
    yield Way("the schema is there already", "refused, nothing is changed" if refused else said, refused)

    said = there.restore(backup, "--clean", "--if-exists")
    same = not said and functions_of_everybody(there.url) == MADE_FOR_EVERYBODY
    yield Way("and with --clean --if-exists", said or "restored in its place", same)

    services.execute("create role another_owner login")
    other = _Try(services, "other", "another_owner")
    said = other.restore(backup, "--no-owner")
    works = said or other.written_by(app)
    yield Way("by another owner, with --no-owner", works or "restored, and the app writes", not works)


class _Try:
    """A database in which an owner may create the schema."""

    def __init__(self, services: Services, database: str, owner: str) -> None:
        services.execute(f"create database {database}", f"grant create on database {database} to {owner}")
        self.url = services.url(owner, database)
        self._services, self._database = services, database

    def restore(self, backup: Path, *options: str) -> str:
        """Return what it said; empty where it succeeded."""
        done = restore(self.url, backup, *options)
        return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""

    @property
    def has_schema(self) -> bool:
        """Whether anything is there."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute("select to_regnamespace('mneme') is not null").fetchone()
        return bool(row and row[0])

    def written_by(self, app: str) -> str:
        """Return why the app cannot write and read memory; empty where it can."""
        try:
            with psycopg.connect(self._services.url(app, self._database)) as connection:
                connection.execute("select mneme.write_l1_snapshot('restored', 1, 10, 'A snapshot.')")
                connection.execute("select mneme.memory('restored', 1000)")
        except psycopg.Error as error:
            return str(error)
        return ""
