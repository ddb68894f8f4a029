"""The tree of errors. Each message says what happened, to what, and what to do about it.

MnemeClientError
├── InvalidInput             the snapshot or the request may not be made: blank, too long, a reversed span, a wrong type
├── SnapshotConflict         the span already has a snapshot, with other content
├── UnsupportedConnection    neither of SQLAlchemy, psycopg nor Django, the wrong half of sync and asyncio, or not in UTF8
├── ConfigurationError       no broker is set, or its URL is none
└── DatabaseError            the database refused for another reason, or is out of reach
    └── SchemaMissing        there is no schema of mneme, or this role may not use it

No message holds text of a conversation, and none is raised from the driver's error: that one quotes parameters.
"""


class MnemeClientError(Exception):
    """The root of everything that this package raises on purpose."""


class InvalidInput(MnemeClientError):
    """What was asked for may not be: blank or oversized content, a reversed span, an impossible session id, a wrong type."""


class SnapshotConflict(MnemeClientError):
    """The same messages of the session already have a snapshot with other content; nothing was changed."""


class UnsupportedConnection(MnemeClientError):
    """The first argument is no connection that this function can use."""


class ConfigurationError(MnemeClientError):
    """No broker is set, or its URL cannot be one."""


class DatabaseError(MnemeClientError):
    """The database refused for a reason that lies not in the input, or is out of reach.

    Attributes:
        sqlstate: Postgres's code of five characters, if Postgres answered at all.
    """

    sqlstate: str | None = None


class SchemaMissing(DatabaseError):
    """The database has no schema of mneme, or its role was not given the right to use it."""
