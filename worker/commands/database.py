"""The database of a command: one connection, with a schema that this release knows."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine


def one_connection() -> "Engine":
    """Return an engine of at most one connection, after a look at the schema.

    Raises:
        SettingsError: no database is set.
        SchemaError: the schema is missing or older than this code.
        StorageError: the database is out of reach.
    """
    from models.engine import make_engine
    from models.migrate import check_schema
    from models.settings import get_settings

    engine = make_engine(get_settings().require_database_url(), pool_size=1)
    check_schema(engine)
    return engine
