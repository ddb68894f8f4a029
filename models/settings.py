"""The settings, typed and read once: ``config.toml``, overridden by the environment.

Precedence, lowest first: the defaults below, the file, the variables that everybody knows (``DATABASE_URL``,
``REDIS_URL``, ``OPENAI_BASE_URL``), then ``MNEME_<SECTION>__<KEY>``. An empty variable counts as unset, as container
tools pass them. Secrets come from the environment only.
"""

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import tomli
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from models.errors import SettingsError
from models.urls import broker_url, database_url, has_password, http_url, redact

EXTRACT = "extract"
DEADLINE_MARGIN_SECONDS = 15.0

_WELL_KNOWN = {
    "DATABASE_URL": ("database", "url"),
    "REDIS_URL": ("broker", "url"),
    "OPENAI_BASE_URL": ("llm", "base_url"),
}
_PREFIX = "MNEME_"
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


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class MnemeSettings(_Section):
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


class LlmSettings(_Section):
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


class DatabaseSettings(_Section):
    """Where Postgres is."""

    url: Annotated[str, AfterValidator(database_url)] | None = None
    pool_size: int = Field(5, ge=1, le=1000)


class BrokerSettings(_Section):
    """Where Redis is."""

    url: Annotated[str, AfterValidator(broker_url)] | None = None


class ScheduleSettings(_Section):
    """The periodic tasks."""

    sweep_seconds: float = Field(30.0, ge=1, le=_MONTH)
    grace_seconds: float = Field(10.0, ge=0, le=_MONTH)
    requeue_seconds: float = Field(120.0, ge=1, le=_MONTH)
    full_count_seconds: float = Field(3600.0, ge=1, le=_MONTH)
    sweep_batch: int = Field(1000, ge=1, le=100_000)
    repair_seconds: float = Field(900.0, ge=1, le=_MONTH)
    repair_tokens_per_day: int = Field(200_000, ge=0)


class SpendSettings(_Section):
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


class WorkerSettings(_Section):
    """The worker process."""

    concurrency: int = Field(8, ge=1, le=10_000)
    pool: Literal["threads", "prefork", "solo"] = "threads"


class EmbeddedSettings(_Section):
    """The servers of ``mneme up`` and ``mneme demo``."""

    servers: Literal["auto", "environment", "machine", "wheel"] = "auto"
    flower_port: int = Field(5555, ge=1, le=65_535)


class Settings(_Section):
    """All settings. Made by ``load_settings``; frozen afterwards."""

    mneme: MnemeSettings = MnemeSettings()
    llm: LlmSettings = LlmSettings()
    database: DatabaseSettings = DatabaseSettings()
    broker: BrokerSettings = BrokerSettings()
    schedules: ScheduleSettings = ScheduleSettings()
    spend: SpendSettings = SpendSettings()
    worker: WorkerSettings = WorkerSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()

    @property
    def room_tokens(self) -> int:
        """What the model's window leaves beside the input's share of it."""
        return self.llm.context_window - int(self.llm.context_window * self.llm.input_fraction)

    @property
    def answer_tokens(self) -> int:
        """The limit on one answer: a summary's, or what the window has room for."""
        return min(self.mneme.max_tokens, self.room_tokens)

    def require_database_url(self) -> str:
        """Return the URL of the database.

        Raises:
            SettingsError: there is none.
        """
        return _required(self.database.url, "database.url", "DATABASE_URL", "postgresql://user:password@host/name")

    def require_broker_url(self) -> str:
        """Return the URL of the broker.

        Raises:
            SettingsError: there is none.
        """
        return _required(self.broker.url, "broker.url", "REDIS_URL", "redis://host:6379/0")

    def require_model(self) -> str:
        """Return the name of the model.

        Raises:
            SettingsError: there is none.
        """
        return _required(
            self.llm.model, "llm.model", "MNEME_LLM__MODEL", f"gpt-4.1-mini, or {EXTRACT} to fold without any model"
        )


_SHORTEST_ANSWER_TOKENS = 256


def _required(value: str | None, key: str, variable: str, example: str) -> str:
    if value is None:
        raise SettingsError(f"{key} is not set: set {variable}, for example to {example}")
    return value


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings from the file and the given environment.

    Raises:
        SettingsError: an unknown key, a wrong type, an impossible value, a file that cannot be read. The message names
            the key, where it was set, the value (never a secret) and what was expected.
    """
    environ = {name: value for name, value in environ.items() if value != ""}
    path = settings_file(environ)
    values, sources = _read_file(path)
    for name, section, key, value in _read_environ(environ):
        values.setdefault(section, {})[key] = value
        sources[section, key] = name
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        # Without its cause: pydantic's own message shows the input, which may hold a password.
        raise SettingsError(_explain(error, sources, path)) from None
    _check_together(settings)
    return settings


@cache
def get_settings() -> Settings:
    """Return the process's settings, read at the first call.

    Raises:
        SettingsError: see ``load_settings``.
    """
    return load_settings()


def settings_file(environ: Mapping[str, str]) -> Path:
    """Return the settings file that this environment leads to."""
    if "MNEME_CONFIG" in environ:
        return Path(environ["MNEME_CONFIG"])
    packaged = Path(str(files("models"))) / "config.toml"
    # In a checkout the packaged file is the one at the top; the wheel carries a copy inside the package.
    candidates = (Path("config.toml"), packaged, packaged.parent.parent / "config.toml")
    return next((path for path in candidates if path.is_file()), packaged)


def _read_file(path: Path) -> tuple[dict[str, Any], dict[tuple[str, str], str]]:
    try:
        values = tomli.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the settings file {path} is not UTF-8") from None
    except tomli.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not valid TOML: {error}") from None
    for section, keys in values.items():
        if not isinstance(keys, dict):
            raise SettingsError(f"{section} in {path}: expected a section such as [mneme], got a value")
        for key, value in keys.items():
            if (isinstance(value, str) and has_password(value)) or (key == "headers" and _holds_secret(value)):
                raise SettingsError(
                    f"{section}.{key} in {path}: a password belongs into the environment, not into a file"
                )
    return values, {(section, key): str(path) for section, keys in values.items() for key in keys}


def _holds_secret(headers: Any) -> bool:
    names = [str(name).lower() for name in headers] if isinstance(headers, dict) else []
    return any(word in name for name in names for word in ("authorization", "key", "token", "secret", "cookie"))


def _read_environ(environ: Mapping[str, str]) -> list[tuple[str, str, str, Any]]:
    """Return (variable, section, key, value) of each variable that is a setting, the more specific ones last."""
    found: list[tuple[str, str, str, Any]] = [
        (name, section, key, environ[name]) for name, (section, key) in _WELL_KNOWN.items() if name in environ
    ]
    for name, value in sorted(environ.items()):
        # Kubernetes gives every pod MNEME_PORT and the like for a service called mneme: only "__" marks a setting.
        if not name.startswith(_PREFIX) or "__" not in name:
            continue
        section, _, key = name.removeprefix(_PREFIX).lower().partition("__")
        found.append((name, section, key, _parse(section, key, value, name)))
    return found


def _parse(section: str, key: str, value: str, name: str) -> Any:
    """Turn a variable's text into what the file would hold: text where the setting is text, a table as JSON, else TOML."""
    section_field = Settings.model_fields.get(section)
    section_class: Any = section_field.annotation if section_field else None
    field = section_class.model_fields.get(key) if section_class else None
    if field is None:
        raise SettingsError(f"{name} is set, but there is no setting {section}.{key}: see config.toml")
    if get_origin(field.annotation) is dict:
        try:
            return json.loads(value)
        except ValueError:
            raise SettingsError(f"{section}.{key} in {name}: expected a JSON object") from None
    if field.annotation not in (int, float):
        return value
    try:
        return tomli.loads(f"value = {value.strip()}")["value"]
    except tomli.TOMLDecodeError:
        return value


def _explain(error: ValidationError, sources: dict[tuple[str, str], str], path: Path) -> str:
    problems = []
    for item in error.errors(include_url=False, include_context=False):
        section, *rest = (str(part) for part in item["loc"])
        key = rest[0] if rest else ""
        where = sources.get((section, key), str(path))
        name = f"{section}.{key}" if key else section
        if item["type"] == "extra_forbidden":
            problems.append(f"{name} in {where}: there is no such setting, see config.toml for those that exist")
        else:
            expected = item["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
            value = redact(str(item["input"])) if key.endswith("url") else item["input"]
            # What stands in a header may be a secret, and in a body anything.
            shown = "" if key in ("headers", "extra_body") else f" {value!r}:"
            problems.append(f"{name} in {where}:{shown} {expected}")
    return "; ".join(problems)


def _check_together(settings: Settings) -> None:
    """Refuse values that are possible one by one and impossible together."""
    mneme, llm, schedules = settings.mneme, settings.llm, settings.schedules
    if mneme.l2_max_snapshots < mneme.l2_snapshot_threshold:
        raise SettingsError(
            f"mneme.l2_max_snapshots: {mneme.l2_max_snapshots}: expected at least mneme.l2_snapshot_threshold,"
            f" which is {mneme.l2_snapshot_threshold}"
        )
    if mneme.run_seconds < llm.timeout_seconds:
        raise SettingsError(
            f"mneme.lease_seconds: {mneme.lease_seconds:g}: a run ends {mneme.run_seconds:g} s after its claim, which"
            f" leaves no room for one call of llm.timeout_seconds, {llm.timeout_seconds:g} s: expected a longer lease"
        )
    if llm.input_fraction * llm.context_window < mneme.max_tokens:
        raise SettingsError(
            f"llm.context_window: {llm.context_window}: the input's share of it (llm.input_fraction {llm.input_fraction:g})"
            f" is smaller than one summary of mneme.max_tokens, {mneme.max_tokens}: expected a larger window"
        )
    if settings.answer_tokens < min(mneme.max_tokens, _SHORTEST_ANSWER_TOKENS):
        raise SettingsError(
            f"llm.input_fraction: {llm.input_fraction:g}: it leaves {settings.answer_tokens} tokens of llm.context_window,"
            f" {llm.context_window}, for the answer: expected at least {_SHORTEST_ANSWER_TOKENS}"
        )
    if schedules.requeue_seconds < schedules.sweep_seconds:
        raise SettingsError(
            f"schedules.requeue_seconds: {schedules.requeue_seconds:g}: expected at least schedules.sweep_seconds,"
            f" which is {schedules.sweep_seconds:g}"
        )
