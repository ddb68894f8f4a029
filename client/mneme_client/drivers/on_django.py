"""Django: the connection of a database alias, in this thread."""

from contextlib import nullcontext
from datetime import datetime
from zoneinfo import ZoneInfo

from asgiref.sync import sync_to_async
from django.db import Error, connections, transaction
from django.utils.connection import ConnectionDoesNotExist

from mneme_client.drivers.choice import Rows
from mneme_client.errors import UnsupportedConnection
from mneme_client.refusals import refusal
from mneme_client.requests import Request
from mneme_client.sending import enqueue_committed


class DjangoDriver:
    """Runs requests on an alias, in the ``atomic`` block that is open there, if one is."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def run(self, request: Request) -> Rows:
        """Return the rows."""
        try:
            connection = connections[self._alias]
        except ConnectionDoesNotExist:
            raise UnsupportedConnection(f"{self._alias!r} is none of the DATABASES of Django's settings") from None
        try:
            in_transaction = connection.in_atomic_block or not connection.get_autocommit()
            guarded = request.writes_to is not None and in_transaction
            with transaction.atomic(using=self._alias) if guarded else nullcontext(), connection.cursor() as cursor:
                cursor.execute(request.statement, request.parameters)
                rows = [[_aware(value, connection.timezone_name) for value in row] for row in cursor.fetchall()]
        except Error as error:
            raise refusal(error.__cause__, error) from None
        # With autocommit switched off by hand Django has no hook: there the caller calls `enqueue`, as with psycopg.
        if (session_id := request.writes_to) is not None and (connection.in_atomic_block or not in_transaction):
            transaction.on_commit(lambda: enqueue_committed(session_id), using=self._alias)
        return rows


def _aware(value: object, zone: str) -> object:
    """Give back the time zone that Django takes from a time where USE_TZ is off."""
    return value.replace(tzinfo=ZoneInfo(zone)) if isinstance(value, datetime) and value.tzinfo is None else value


class AsyncDjangoDriver:
    """The same from a coroutine, in the thread that Django keeps for its connections there."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    async def run(self, request: Request) -> Rows:
        """Return the rows. Django knows no transaction across ``await``: each write is committed by itself."""
        rows: Rows = await sync_to_async(DjangoDriver(self._alias).run, thread_sensitive=True)(request)
        return rows
