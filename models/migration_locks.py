"""The locks of a migration: on all tables at once, before it changes any."""

import random
import time

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

_TABLES = text("""
    select string_agg(format('%I.%I', 'mneme', relname), ', ' order by relname) from pg_class
     where relnamespace = 'mneme'::regnamespace and relkind = 'r' and relname <> 'alembic_version'
""")
_SETTINGS = text("""
    select current_setting('statement_timeout'), (select setting::integer from pg_settings where name = 'deadlock_timeout')
""")
_LET_OTHERS_GO_ON = ("57014", "55P03", "40P01")  # it took too long, a lock was not to be had, a deadlock


def lock_tables(connection: Connection, within_seconds: float) -> None:
    """Lock every table of the schema until the transaction ends.

    A migration that locks them one by one, and a writer who holds another of them, would wait for each other, and Postgres
    would refuse the one or the other. An attempt ends before Postgres looks for deadlocks: it is never the writer who loses.

    Raises:
        OperationalError: there was always a transaction that held one of them.
    """
    tables = connection.execute(_TABLES).scalar()
    if tables is None:
        return
    usual, deadlock_ms = connection.execute(_SETTINGS).one()
    until = time.monotonic() + within_seconds
    while True:
        try:
            with connection.begin_nested():
                connection.execute(text(f"set local statement_timeout = {max(1, deadlock_ms // 2)}"))
                connection.execute(text(f"lock table {tables} in access exclusive mode"))
                connection.execute(text("select set_config('statement_timeout', :usual, true)"), {"usual": usual})
            return
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) not in _LET_OTHERS_GO_ON or time.monotonic() > until:
                raise
        time.sleep(random.uniform(0.05, 0.5))  # while those who waited behind us go on
