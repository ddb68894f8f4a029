"""Bringing the schema up to date, checking that it is, and giving a main app's role its rights."""

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from models import sql
from models.engine import transaction
from models.errors import SchemaError, StorageError
from models.migration_locks import lock_tables

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATION_SECONDS = 600.0
LOCKS_SECONDS = 10.0


def _alembic() -> "Config":
    from alembic.config import Config  # here: every command looks at the schema, and few bring it up to date

    # In code, not in an alembic.ini: the main app in whose directory we run may have one of its own.
    config = Config()
    config.set_main_option("script_location", "models:migrations")
    config.set_main_option("path_separator", "os")
    return config


def known_revisions() -> list[str]:
    """Return the revisions that this code knows, oldest first: the numbers with which the names of their files begin."""
    return sorted(path.name[:4] for path in (Path(__file__).parent / "migrations" / "versions").glob("[0-9]*.py"))


def current_revision(connection: Connection) -> str | None:
    """Return the revision of the database, or None when there is no schema."""
    exists = connection.execute(text("select to_regclass('mneme.alembic_version') is not null")).scalar_one()
    return connection.execute(text("select version_num from mneme.alembic_version")).scalar() if exists else None


def migrate(engine: Engine, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring the schema to this code's newest revision; safe to run again, and from several processes at once.

    Args:
        engine: where.
        revision: an older one, for a test of what an upgrade does with rows that are there.

    Returns:
        The revision before and after; None for no schema.

    Raises:
        StorageError: the database refused.
        SchemaError: the database is of a newer release than this code.
    """
    from alembic import command

    config = _alembic()
    with transaction(engine, statement_seconds=MIGRATION_SECONDS) as connection:
        # Waits for a second process that migrates; the lock ends with the transaction, so pgbouncer does no harm.
        connection.execute(text("set local lock_timeout = 0"))
        connection.execute(text("select pg_advisory_xact_lock(hashtext('mneme.migrate'))"))
        connection.execute(text("set local lock_timeout = '10s'"))
        encoding = connection.execute(text("show server_encoding")).scalar_one()
        if encoding != "UTF8":
            raise SchemaError(f"the database is encoded in {encoding}: mneme needs one in UTF8")
        # Asked first: "if not exists" wants the right to create schemas even where ours exists.
        if not connection.execute(text("select 1 from pg_namespace where nspname = 'mneme'")).scalar():
            _create_schema(connection)
        before = current_revision(connection)
        if before is not None and before not in known_revisions():
            raise SchemaError(
                f"the schema is at revision {before}, which this release does not know: install a newer release"
            )
        if before != known_revisions()[-1]:
            lock_tables(connection, LOCKS_SECONDS)
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        return before, current_revision(connection)


def _create_schema(connection: Connection) -> None:
    allowed = text("select has_database_privilege(current_database(), 'create'), current_user, current_database()")
    may, role, database = connection.execute(allowed).one()
    if not may:
        quote = connection.dialect.identifier_preparer.quote
        raise StorageError(
            f"the role {role} may not create a schema in this database: as the database's owner,"
            f" grant create on database {quote(database)} to {quote(role)}"
        )
    connection.execute(text("create schema mneme"))


def check_schema(engine: Engine) -> None:
    """Make sure that the schema is there and not older than this code.

    A newer one passes: workers of the release before run on while a new release is rolled out.

    Raises:
        SchemaError: it is missing or older.
        StorageError: the database is out of reach.
    """
    revisions = known_revisions()
    with transaction(engine) as connection:
        found = current_revision(connection)
    if found is None:
        raise SchemaError("the database has no schema of mneme: run `mneme migrate`")
    if found in revisions[:-1]:
        raise SchemaError(f"the schema is at revision {found}, this release needs {revisions[-1]}: run `mneme migrate`")


def check_schema_if_reachable(engine: Engine) -> StorageError | None:
    """Make sure of the schema as ``check_schema`` does, for a process that waits for its database; return why it is away.

    Raises:
        SchemaError: it is missing or older.
    """
    try:
        check_schema(engine)
    except SchemaError:
        raise
    except StorageError as away:
        return away
    return None


def grant(engine: Engine, role: str) -> None:
    """Give the role of a main app what it needs: to write snapshots, append messages, and read memory.

    Raises:
        StorageError: there is no such role, or the database refused.
        SchemaError: there is no schema.
    """
    check_schema(engine)
    with transaction(engine) as connection:
        if not connection.execute(text("select 1 from pg_roles where rolname = :role"), {"role": role}).scalar():
            raise StorageError(f"there is no role {role!r} in this database: create it first")
        quoted = connection.dialect.identifier_preparer.quote_identifier(role)
        for right in sql.GRANTS:
            connection.exec_driver_sql(f"grant {right} to {quoted}")
