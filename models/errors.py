"""The tree of errors. Each message says what happened, to what, and what to do about it.

MnemeError
├── SettingsError            a setting is unknown, of the wrong type or impossible: exit code 2
├── InvalidNode              a node that may not be written, or that contradicts what is written
│   └── NodeExists           the id or the span is already taken
├── SupersedeError           the given nodes cannot be marked as superseded
├── StorageError             Postgres refused a statement, or is out of reach
│   └── SchemaError          the schema is missing or older than this code
├── BrokerError              Redis did not take a message in time
└── FoldFailed               an attempt to fold failed, and is recorded as such
    ├── TransientFailure     try again later: timeouts, 429, 5xx, a broken answer
    ├── ConfigurationFailure nothing works until somebody mends the settings: 401, unknown model
    │   ├── InputTooLong     the server says that the request is too long
    │   └── RequestRefused   the server refuses it in every form, and may find it too long
    └── ContentFailure       the model's answer must not be stored

Every error takes one string, because an exception of several arguments does not survive Celery's events.
No message holds text of a conversation.
"""

from typing import Literal

Blame = Literal["settings", "server", "nobody"]


class MnemeError(Exception):
    """The root of everything that this project raises on purpose."""


class SettingsError(MnemeError):
    """A setting is unknown, of the wrong type or impossible."""


class InvalidNode(MnemeError):
    """A summary node, or a session id, that may not be written."""


class NodeExists(InvalidNode):
    """The node's id, or its Level 1 span, is already taken by another node."""


class SupersedeError(MnemeError):
    """The given nodes cannot be marked as superseded."""


class StorageError(MnemeError):
    """Postgres refused a statement or is out of reach.

    Attributes:
        transient: whether the same transaction may pass later: no connection, a deadlock, a timeout, a shutdown.
        conflict: whether it was rolled back for the sake of another one, and passes when it is made again at once.
    """

    transient = False
    conflict = False


class SchemaError(StorageError):
    """The database has no schema of mneme, or an older one than this code needs."""


class BrokerError(MnemeError):
    """The broker did not take a message within its timeout."""


class FoldFailed(MnemeError):
    """An attempt to fold failed.

    Attributes:
        kind: what ``compaction_runs.error_kind`` says of it: ``transient``, ``configuration``, ``content``
            or ``too_long``.
        retry_after_seconds: how long the server asked to be left alone, if it did.
        blame: what it says of the model's server. *settings*: no call can succeed until they are mended; *server*: the
            next may fail too; *nobody*: nothing, the server answered or was not asked.
    """

    kind = "transient"
    retry_after_seconds: float | None = None
    blame: Blame = "nobody"


class TransientFailure(FoldFailed):
    """Something that passes by itself: a timeout, a refused connection, 429, 5xx, a 200 that is no chat completion."""

    kind = "transient"
    blame: Blame = "server"


class ConfigurationFailure(FoldFailed):
    """Something that lasts until the settings are mended: a wrong key, an unknown model, a refused parameter."""

    kind = "configuration"
    blame: Blame = "settings"


class InputTooLong(ConfigurationFailure):
    """The server refused the request for its length; a shorter one may pass.

    Its ``kind`` becomes ``too_long`` where the next attempt is to be made with less.
    """

    blame: Blame = "nobody"


class RequestRefused(ConfigurationFailure):
    """The server refused the request in its simplest form too (400, 422), and did not say that it is too long."""

    blame: Blame = "server"


class ContentFailure(FoldFailed):
    """The model answered, and the answer must not be stored."""

    kind = "content"
