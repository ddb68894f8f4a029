"""The sections of the settings: each key with its type, its bounds and its default."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from models.urls import broker_url, database_url, http_url

DEADLINE_MARGIN_SECONDS = 15.0
_MONTH = 30 * 86_400.0


class Table(dict[str, Any]):
    """A table of the settings: hashable, as everything in them is, since engines and brokers are made once for each."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Hash what it holds; it is never changed."""
        return hash(json.dumps(self, sort_keys=True, default=str))


def _extra_body(given: dict[str, Any]) -> Table:
    if reserved := {"model", "messages", "tools", "stream", "n"} & given.keys():
        raise ValueError(f"expected fields that a gateway wants; mneme itself sets {', '.join(sorted(reserved))}")
    return Table(given)


def _headers(given: dict[str, str]) -> Table:
    for name, value in given.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError("expected names of HTTP headers")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"expected printable ASCII as the value of {name}")
    return Table(given)


class Section(BaseModel):
    """Strict, frozen, and without keys of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class MnemeSettings(Section):
    """When to fold, how much at once, and what follows when it goes wrong."""

    l2_snapshot_threshold: int = Field(5, ge=2)
    l2_max_snapshots: int = Field(20, ge=2, le=200)
    max_tokens: int = Field(2048, ge=64, le=8192)
    max_level: int = Field(2, ge=2, le=16)
    content_attempts: int = Field(3, ge=1)
    max_crashes: int = Field(5, ge=2)
    fallback: Literal["extract", "none"] = "extract"
    lease_seconds: float = Field(300.0, ge=1, le=86_400)
    max_unsupported_items: int = Field(10, ge=0)
    l1_budget_fraction: float = Field(0.15, gt=0, le=1)
    l2_budget_fraction: float = Field(0.05, gt=0, le=1)

    @property
    def run_seconds(self) -> float:
        """How long a run may take: a run that ends before its lease is never robbed."""
        return self.lease_seconds - min(DEADLINE_MARGIN_SECONDS, self.lease_seconds / 4)


class LlmSettings(Section):
    """Which model makes the summaries, and how to reach it."""

    model: str | None = Field(None, pattern=r"^\S+( \S+)*$")
    base_url: Annotated[str, AfterValidator(http_url)] | None = None
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Table()
    extra_body: Annotated[dict[str, Any], AfterValidator(_extra_body)] = Table()
    prompt_file: str | None = None
    timeout_seconds: float = Field(120.0, ge=1, le=3600)
    context_window: int = Field(128_000, ge=2048)
    input_fraction: float = Field(0.75, gt=0, le=1)
    breaker_failures: int = Field(5, ge=1, le=1_000_000)
    breaker_seconds: float = Field(60.0, ge=1, le=86_400)


class DatabaseSettings(Section):
    """Where Postgres is."""

    url: Annotated[str, AfterValidator(database_url)] | None = None
    pool_size: int = Field(5, ge=1, le=1000)


class BrokerSettings(Section):
    """Where Redis is."""

    url: Annotated[str, AfterValidator(broker_url)] | None = None


class ScheduleSettings(Section):
    """The periodic tasks."""

    sweep_seconds: float = Field(30.0, ge=1, le=_MONTH)
    grace_seconds: float = Field(10.0, ge=0, le=_MONTH)
    requeue_seconds: float = Field(120.0, ge=1, le=_MONTH)
    full_count_seconds: float = Field(3600.0, ge=1, le=_MONTH)
    sweep_batch: int = Field(1000, ge=1, le=100_000)
    repair_seconds: float = Field(900.0, ge=1, le=_MONTH)
    repair_tokens_per_day: int = Field(200_000, ge=0)
    retention_seconds: float = Field(3600.0, ge=1, le=_MONTH)
    retention_days: float = Field(30.0, ge=1, le=36_500)
    doctor_seconds: float = Field(21_600.0, ge=0, le=_MONTH)


class SpendSettings(Section):
    """What may be spent, and what it costs. 0: no cap, no price."""

    tokens_per_hour: int = Field(0, ge=0)
    tokens_per_day: int = Field(0, ge=0)
    session_tokens_per_hour: int = Field(0, ge=0)
    session_tokens_per_day: int = Field(0, ge=0)
    prompt_price: float = Field(0.0, ge=0)
    completion_price: float = Field(0.0, ge=0)

    @property
    def caps(self) -> dict[str, int]:
        """The caps, as the statements name them."""
        return {
            "cap_hour": self.tokens_per_hour,
            "cap_day": self.tokens_per_day,
            "cap_session_hour": self.session_tokens_per_hour,
            "cap_session_day": self.session_tokens_per_day,
        }


NO_CAPS = SpendSettings()


class WorkerSettings(Section):
    """The worker process."""

    concurrency: int = Field(8, ge=1, le=10_000)
    pool: Literal["threads", "prefork", "solo"] = "threads"
    log_format: Literal["auto", "json", "text"] = "auto"
    liveness_file: str | None = None


class EmbeddedSettings(Section):
    """The servers of ``mneme up`` and ``mneme demo``."""

    servers: Literal["auto", "environment", "machine", "wheel"] = "auto"
    flower_port: int = Field(5555, ge=1, le=65_535)
