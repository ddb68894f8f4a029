"""What mneme keeps: settings, the engine, the schema, and ``SummaryDAGStore``."""

from models.engine import get_engine, make_engine, transaction
from models.errors import (
    BrokerError,
    ConfigurationFailure,
    ContentFailure,
    FoldFailed,
    InputTooLong,
    InvalidNode,
    MnemeError,
    NodeExists,
    RequestRefused,
    SchemaError,
    SettingsError,
    StorageError,
    SupersedeError,
    TransientFailure,
)
from models.memory import memory
from models.migrate import check_schema, grant, migrate
from models.nodes import MessageSpan, SummaryNode
from models.settings import Settings, get_settings, load_settings
from models.store import SummaryDAGStore
from models.text import clean_text, estimate_tokens, is_blank

__all__ = [
    "BrokerError",
    "ConfigurationFailure",
    "ContentFailure",
    "FoldFailed",
    "InputTooLong",
    "InvalidNode",
    "MessageSpan",
    "MnemeError",
    "NodeExists",
    "RequestRefused",
    "SchemaError",
    "Settings",
    "SettingsError",
    "StorageError",
    "SummaryDAGStore",
    "SummaryNode",
    "SupersedeError",
    "TransientFailure",
    "check_schema",
    "clean_text",
    "estimate_tokens",
    "get_engine",
    "get_settings",
    "grant",
    "is_blank",
    "load_settings",
    "make_engine",
    "memory",
    "migrate",
    "transaction",
]
