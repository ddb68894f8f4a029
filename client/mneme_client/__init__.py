"""What a main app needs of mneme: write snapshots, have them folded, read memory back. For asyncio: ``mneme_client.aio``."""

from mneme_client import aio
from mneme_client.calls import active, memory, write_snapshot
from mneme_client.errors import (
    ConfigurationError,
    DatabaseError,
    InvalidInput,
    MnemeClientError,
    SchemaMissing,
    SnapshotConflict,
    UnsupportedConnection,
)
from mneme_client.nodes import ActiveNode
from mneme_client.sending import configure, enqueue

__all__ = [
    "ActiveNode",
    "ConfigurationError",
    "DatabaseError",
    "InvalidInput",
    "MnemeClientError",
    "SchemaMissing",
    "SnapshotConflict",
    "UnsupportedConnection",
    "active",
    "aio",
    "configure",
    "enqueue",
    "memory",
    "write_snapshot",
]
