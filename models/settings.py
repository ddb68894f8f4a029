"""The settings, typed and read once: ``config.toml``, overridden by the environment.

Precedence, lowest first: the defaults below, the file, the variables that everybody knows (``DATABASE_URL``,
``REDIS_URL``, ``OPENAI_BASE_URL``), then ``MNEME_<SECTION>__<KEY>``. An empty variable counts as unset, as container
tools pass them. Secrets come from the environment only.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import tomli
from pydantic import ValidationError

from models.errors import SettingsError
from models.settings_sections import (
    NO_CAPS,
    BrokerSettings,
    DatabaseSettings,
    EmbeddedSettings,
    LlmSettings,
    MnemeSettings,
    ScheduleSettings,
    Section,
    SpendSettings,
    WorkerSettings,
)
from models.urls import has_password, redact

__all__ = [
    "EXTRACT", "NO_CAPS", "LlmSettings", "MnemeSettings", "ScheduleSettings", "Settings", "SpendSettings", "effective_settings",
    "get_settings", "load_settings", "settings_file",
]  # fmt: skip

EXTRACT = "extract"

_WELL_KNOWN = {
    "DATABASE_URL": ("database", "url"),
    "REDIS_URL": ("broker", "url"),
    "OPENAI_BASE_URL": ("llm", "base_url"),
}
_PREFIX = "MNEME_"


class Settings(Section):
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
    return _load(environ)[0]


def _load(environ: Mapping[str, str]) -> tuple[Settings, dict[tuple[str, str], str]]:
    environ = {name: value for name, value in environ.items() if value != ""}
    path = settings_file(environ)
    values, sources = _read_file(path)
    prompt = values.get("llm", {}).get("prompt_file")
    if prompt and isinstance(prompt, str):
        values["llm"]["prompt_file"] = str(path.parent / prompt)  # beside the file that names it, wherever we run
    for name, section, key, value in _read_environ(environ):
        values.setdefault(section, {})[key] = value
        sources[section, key] = name
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        # Without its cause: pydantic's own message shows the input, which may hold a password.
        raise SettingsError(_explain(error, sources, path)) from None
    _check_together(settings)
    return settings, sources


class Effective(NamedTuple):
    """One setting as it is in effect; ``source`` is a variable, a file, or *default*. Nothing secret is in ``value``."""

    section: str
    key: str
    value: Any
    source: str


def effective_settings(environ: Mapping[str, str] = os.environ) -> list[Effective]:
    """Return every setting with where it came from, in the order of ``config.toml``, secrets hidden.

    Raises:
        SettingsError: as ``load_settings``.
    """
    settings, sources = _load(environ)
    return [
        Effective(section, key, _shown(key, value), sources.get((section, key), "default"))
        for section, keys in settings.model_dump().items()
        for key, value in keys.items()
    ]


def _shown(key: str, value: Any) -> Any:
    """Return a value as it may be shown: a URL without its password, of tables the names alone."""
    if key.endswith("url") and value is not None:
        return redact(value)
    return dict.fromkeys(value, "(not shown)") if isinstance(value, dict) else value


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
    # os.path says no where a directory may not be searched; Path raises.
    return next((path for path in candidates if os.path.isfile(path)), packaged)


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
