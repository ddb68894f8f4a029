"""Settings: read once, typed, and refused with the key, the value and what was expected."""

import re
from pathlib import Path

import pytest
import tomli
from sqlalchemy import make_url

from models import SettingsError, load_settings
from models.settings import MnemeSettings, Settings
from models.urls import passwords, redact
from tests.support.processes import ROOT, celery, mneme, run


def test_config_toml_lists_every_setting_with_its_default() -> None:
    file = ROOT / "config.toml"
    assert load_settings({"MNEME_CONFIG": str(file)}) == Settings()
    text = file.read_text()
    sections = dict(re.findall(r"^\[(\w+)\]\n((?:.*\n)*?)(?=\n\[|\Z)", text, re.MULTILINE))
    assert set(sections) == set(Settings.model_fields)
    for section, field in Settings.model_fields.items():
        for key in field.annotation.model_fields:  # type: ignore[union-attr]
            lines = [line for line in sections[section].splitlines() if line.removeprefix("# ").startswith(f"{key} =")]
            assert len(lines) == 1, f"{section}.{key}"
            assert " # " in lines[0] or lines[0].startswith("# "), f"{section}.{key} has no word on what it does"
    given = tomli.loads(text)
    for section, keys in given.items():
        for key, value in keys.items():
            assert getattr(getattr(Settings(), section), key) == value


def test_the_environment_overrides_the_file_and_the_specific_the_general(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[mneme]\nl2_snapshot_threshold = 7\n[llm]\nmodel = 'a'\nbase_url = 'http://file/v1'\n")
    environ = {"MNEME_CONFIG": str(file)}
    assert load_settings(environ).mneme.l2_snapshot_threshold == 7
    environ |= {
        "MNEME_MNEME__L2_SNAPSHOT_THRESHOLD": "9",
        "OPENAI_BASE_URL": "http://general/v1",
        "MNEME_LLM__MODEL": "123",
    }
    settings = load_settings(environ)
    assert (settings.mneme.l2_snapshot_threshold, settings.llm.base_url, settings.llm.model) == (
        9,
        "http://general/v1",
        "123",
    )
    assert load_settings(environ | {"MNEME_LLM__BASE_URL": "http://mine/v1"}).llm.base_url == "http://mine/v1"


def test_the_working_directory_comes_before_the_packaged_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings({}).mneme.l2_snapshot_threshold == 5
    (tmp_path / "config.toml").write_text("[mneme]\nl2_snapshot_threshold = 6\n")
    assert load_settings({}).mneme.l2_snapshot_threshold == 6


def test_empty_variables_are_unset_and_those_of_others_ignored() -> None:
    environ = {"DATABASE_URL": "", "MNEME_LLM__MODEL": "", "MNEME_PORT": "tcp://10.0.0.1:80", "MNEME_SERVICE_HOST": "x"}
    assert load_settings(environ) == Settings()


REFUSED = {
    "unknown key": ({"MNEME_MNEME__TRESHOLD": "5"}, "MNEME_MNEME__TRESHOLD is set, but there is no setting mneme.treshold"),
    "unknown section": ({"MNEME_MEME__X": "5"}, "there is no setting meme.x"),
    "no number": ({"MNEME_MNEME__MAX_TOKENS": "many"}, "mneme.max_tokens in MNEME_MNEME__MAX_TOKENS: 'many'"),
    "a fraction of a number": ({"MNEME_MNEME__MAX_TOKENS": "99.5"}, "mneme.max_tokens .* 99.5: expected a valid integer"),
    "a truth": ({"MNEME_MNEME__MAX_TOKENS": "true"}, "mneme.max_tokens .* True"),
    "not finite": ({"MNEME_SCHEDULES__SWEEP_SECONDS": "inf"}, "schedules.sweep_seconds .* inf: expected a finite number"),
    "threshold below 2": ({"MNEME_MNEME__L2_SNAPSHOT_THRESHOLD": "1"}, "1: expected greater than or equal to 2"),
    "maximum below threshold": (
        {"MNEME_MNEME__L2_MAX_SNAPSHOTS": "4"}, "mneme.l2_max_snapshots: 4: expected at least mneme.l2_snapshot_threshold, which is 5",
    ),
    "no room for a call": (
        {"MNEME_LLM__TIMEOUT_SECONDS": "290"}, "mneme.lease_seconds: 300: .* leaves no room for one call of llm.timeout_seconds, 290 s",
    ),
    "a window smaller than a summary": ({"MNEME_LLM__CONTEXT_WINDOW": "2048"}, "llm.context_window: 2048"),
    "no room for an answer": (
        {"MNEME_LLM__INPUT_FRACTION": "1"}, "llm.input_fraction: 1: it leaves 0 tokens of llm.context_window, 128000, for the answer",
    ),
    "headers that are no JSON": ({"MNEME_LLM__HEADERS": "x-key: hunter2"}, "llm.headers in MNEME_LLM__HEADERS: expected a JSON object$"),
    "headers that are a list": ({"MNEME_LLM__HEADERS": '["hunter2"]'}, "llm.headers in MNEME_LLM__HEADERS: expected a valid dictionary$"),
    "a header that is no text": ({"MNEME_LLM__HEADERS": '{"x": {"y": "hunter2"}}'}, "llm.headers in MNEME_LLM__HEADERS: expected a valid"),
    "a body that is no table": ({"MNEME_LLM__EXTRA_BODY": '"hunter2"'}, "llm.extra_body in MNEME_LLM__EXTRA_BODY: expected a valid"),
    "requeue before the next sweep": ({"MNEME_SCHEDULES__REQUEUE_SECONDS": "10"}, "schedules.requeue_seconds: 10"),
    "an unknown pool": ({"MNEME_WORKER__POOL": "gevent"}, "worker.pool .* 'gevent': expected 'threads', 'prefork' or 'solo'"),
    "an unknown fallback": ({"MNEME_MNEME__FALLBACK": "drop"}, "mneme.fallback .* 'drop': expected 'extract' or 'none'"),
    "mysql": ({"DATABASE_URL": "mysql://u:hunter2@h/d"}, r"database.url in DATABASE_URL: 'mysql://u:\*\*\*@h/d': expected a URL such"),
    "no database name": ({"DATABASE_URL": "postgresql://u:hunter2@h"}, "expected the name of a database"),
    "a bad port": ({"DATABASE_URL": "postgresql://u:hunter2@h:port/d"}, r"postgresql://u:\*\*\*@h:port/d"),
    "no URL at all": ({"DATABASE_URL": "hunter2"}, r"database.url in DATABASE_URL: '\(not shown\)'"),
    "amqp": ({"REDIS_URL": "amqp://u:hunter2@h"}, r"broker.url in REDIS_URL: 'amqp://u:\*\*\*@h': expected a URL such as redis:"),
    "no redis host": ({"REDIS_URL": "redis://"}, "broker.url in REDIS_URL"),
    "a bad redis port": ({"REDIS_URL": "redis://h:99999/0"}, "broker.url in REDIS_URL"),
    "a redis database that is no number": ({"REDIS_URL": "redis://h:6379/main"}, "broker.url in REDIS_URL"),
    "a port beyond all ports": ({"DATABASE_URL": "postgresql://h:99999/d"}, "expected a port between 1 and 65535"),
    "an unknown sslmode": ({"DATABASE_URL": "postgresql://h/d?sslmode=bogus"}, "expected sslmode to be one of disable"),
    "an option of another driver": ({"DATABASE_URL": "postgresql://h/d?ssl=true"}, "only options that libpq knows, not ssl"),
    "a model of spaces": ({"MNEME_LLM__MODEL": " "}, "llm.model in MNEME_LLM__MODEL"),
    "a sweep in a thousand years": ({"MNEME_SCHEDULES__SWEEP_SECONDS": "1e15"}, "schedules.sweep_seconds"),
    "no HTTP": ({"OPENAI_BASE_URL": "ftp://h/v1"}, "llm.base_url in OPENAI_BASE_URL: 'ftp://h/v1': expected a URL such as https"),
    "half an address": ({"OPENAI_BASE_URL": "http://[::1/v1"}, "llm.base_url in OPENAI_BASE_URL"),
    "no such file": ({"MNEME_CONFIG": "/nonexistent.toml"}, "/nonexistent.toml cannot be read: No such file"),
}  # fmt: skip


@pytest.mark.parametrize(("environ", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_impossible_settings_are_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        load_settings(environ)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


FILES = {
    "unknown section": ("[memory]\nx = 1\n", "memory in .*: there is no such setting"),
    "unknown key": ("[mneme]\ntreshold = 5\n", "mneme.treshold in .*: there is no such setting"),
    "text for a number": ("[mneme]\nmax_tokens = '2048'\n", "mneme.max_tokens in .*: '2048': expected a valid integer"),
    "a number for text": ("[llm]\nmodel = 4\n", "llm.model in .*: 4: expected a valid string"),
    "no section": ("mneme = 4\n", "mneme in .*: expected a section"),
    "no TOML": ("[mneme\n", "is not valid TOML"),
    "a key in a header": ("[llm.headers]\nX-Api-Key = 'hunter2'\n", "llm.headers in .*: a password belongs into the environment"),
    "a bearer": ("[llm]\nheaders = {Authorization = 'Bearer hunter2'}\n", "llm.headers in .*: a password belongs into the"),
    "a password": ("[database]\nurl = 'postgresql://u:hunter2@h/d'\n", "database.url in .*: a password belongs into the environment"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FILES.values(), ids=FILES.keys())
def test_a_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=message) as caught:
        load_settings({"MNEME_CONFIG": str(file)})
    assert str(file) in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_several_problems_are_named_at_once() -> None:
    with pytest.raises(SettingsError, match=r"max_tokens.*; .*pool"):
        load_settings({"MNEME_MNEME__MAX_TOKENS": "1", "MNEME_WORKER__POOL": "x"})


DATABASES = {
    "postgres://u:p@h/d": ("u", "p", "h", None, "d"),
    "postgresql://u:p@h:5433/d?sslmode=require": ("u", "p", "h", 5433, "d"),
    "postgresql+asyncpg://u:p@h/d": ("u", "p", "h", None, "d"),
    "postgresql://u:p%40ss%25w%2Frd@h/d": ("u", "p@ss%w/rd", "h", None, "d"),
    "postgresql://u:p@ss@h/d": ("u", "p@ss", "h", None, "d"),
    "postgresql://u:100%@h/d": ("u", "100%", "h", None, "d"),
    "postgresql://u:a:b@h/d": ("u", "a:b", "h", None, "d"),
    "postgresql://u@h/d": ("u", None, "h", None, "d"),
    "postgresql:///d?host=/var/run": (None, None, None, None, "d"),
    "postgresql://u@%2Fvar%2Frun:5433/d": ("u", None, None, 5433, "d"),
    " postgresql://u:p@[::1]:5432/d ": ("u", "p", "::1", 5432, "d"),
}


@pytest.mark.parametrize(("text", "parts"), DATABASES.items(), ids=DATABASES.keys())
def test_database_urls_as_people_write_them(text: str, parts: tuple[object, ...]) -> None:
    url = make_url(load_settings({"DATABASE_URL": text}).require_database_url())
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.port, url.database) == parts
    if "sslmode" in text:
        assert url.query["sslmode"] == "require"


@pytest.mark.parametrize("url", ["redis://h:6379/0", "rediss://:p@h/1", "redis+socket:///tmp/redis.sock"])
def test_broker_urls(url: str) -> None:
    assert load_settings({"REDIS_URL": url}).require_broker_url() == url


def test_a_password_in_the_query_of_a_url_is_one_too() -> None:
    database = "postgresql://u:p%40@h/d?sslpassword=k%40y&sslmode=require"
    assert redact(database) == "postgresql://u:***@h/d?sslpassword=***&sslmode=require"
    assert passwords(database) == {"p%40", "p@", "k%40y", "k@y"}
    with pytest.raises(SettingsError, match="expected a TLS key without a password") as raised:
        load_settings({"REDIS_URL": "rediss://h/0?ssl_keyfile=/k&ssl_password=hunter2"})
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("command", [mneme("migrate"), celery("worker"), celery("beat"), celery("flower")])
def test_every_process_stops_with_one_sentence_and_exit_code_2(command: list[str]) -> None:
    environ = {"DATABASE_URL": "postgresql://h/d", "REDIS_URL": "redis://h", "MNEME_MNEME__L2_SNAPSHOT_THRESHOLD": "1"}
    done = run(command, environ)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "mneme: mneme.l2_snapshot_threshold in MNEME_MNEME__L2_SNAPSHOT_THRESHOLD: 1: expected greater than or equal to 2"
    ]


@pytest.mark.parametrize("lease_seconds", [1, 4, 60, 61, 300, 86_400])
def test_a_run_ends_before_its_lease_whatever_the_settings(lease_seconds: float) -> None:
    """FAILURES 4: a holder that is in its time is never robbed."""
    run_seconds = MnemeSettings(lease_seconds=lease_seconds).run_seconds
    assert run_seconds == lease_seconds - min(15, lease_seconds / 4)


def test_a_prompt_file_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[llm]\nprompt_file = "prompt.txt"\n')
    environ = {"MNEME_CONFIG": str(file)}
    assert load_settings(environ).llm.prompt_file == str(tmp_path / "prompt.txt")
    assert load_settings(environ | {"MNEME_LLM__PROMPT_FILE": "p.txt"}).llm.prompt_file == "p.txt"
    file.write_text('[llm]\nprompt_file = ""\n')
    assert load_settings(environ).llm.prompt_file == ""  # as before it was looked for: our own prompt
    file.write_text('[llm]\nprompt_file = "/etc/prompt.txt"\n')
    assert load_settings(environ).llm.prompt_file == "/etc/prompt.txt"
