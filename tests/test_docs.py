"""What the documents name is there: files, headings, tests, commands and their options, settings, targets of make."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.processes import ROOT
from worker.cli import main

DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {part for part in path.relative_to(ROOT).parts[:-1] if part.startswith(".") or part == "node_modules"}
)
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
BEFORE = r"(?:^\s*|[(;] ?|/bin/| -- |exec -T \w+ )"  # a command on this machine, or in a container
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"def (test_\w+)", path.read_text())
}  # fmt: skip
CONFIG = tomllib.loads((ROOT / "config.toml").read_text().replace("# model =", "model =").replace("# url =", "url ="))
OTHERS_OWN = {"http", "https"}
# Tables, functions and tasks that are written like settings of the section "mneme".
SQL_NAMES = set(
    re.findall(
        r"\bmneme\.(\w+)",
        "".join(path.read_text() for path in (ROOT / "models" / "migrations").rglob("*.sql"))
        + (ROOT / "tasks" / "broker.py").read_text(),
    )
)


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub makes of a document's headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code(text: str) -> Iterator[str]:
    """Give each line of code of a document: of its blocks for a shell, and what stands between backticks."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        yield from re.sub(r"\\\n\s*", "", block).splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE))


def commands(text: str) -> Iterator[list[str]]:
    """Give the words after each ``mneme`` that begins a command."""
    for line in code(text):
        for found in re.finditer(rf"{BEFORE}mneme (?P<words>[a-z][^|;&>)]*)", line.split(" #")[0]):
            try:
                yield shlex.split(found["words"])
            except ValueError:
                yield found["words"].split()


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    path = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.split(":")[0] in OTHERS_OWN:
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), f"{name}: {target}"
        assert not anchor or anchor in anchors(place), f"{name}: {target}"


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist_and_know_their_options(name: str) -> None:
    for words in commands((ROOT / name).read_text()):
        command = main.commands.get(words[0].rstrip(",.:"))
        assert command is not None, f"{name}: mneme {' '.join(words)}"
        options = {option for parameter in command.params for option in getattr(parameter, "opts", ())} | {"--help"}
        given = {word.split("=")[0].strip("[],.") for word in words[1:] if word.startswith(("--", "[--"))}
        assert given <= options, f"{name}: mneme {' '.join(words)}"


def test_every_command_is_described() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    described = {words[0].rstrip(",") for words in commands(text)}
    assert set(main.commands) - {"up", "demo", "migrate", "grant"} <= described
    assert all(isinstance(command, click.Command) for command in main.commands.values())


@pytest.mark.parametrize("name", NAMES)
def test_settings_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    dotted = re.findall(rf"`({'|'.join(CONFIG)})\.([a-z][a-z0-9_]+)\b(?!\()", text)
    variables = re.findall(r"\bMNEME_([A-Z]+)__([A-Z0-9_]+)\b", text)
    named = {
        (section, key)
        for section, key in dotted
        if key not in ("yaml", "env") and not (ROOT / section / f"{key}.py").exists()
    }
    named -= {("mneme", key) for key in SQL_NAMES}
    for section, key in named | {(section.lower(), key.lower()) for section, key in variables}:
        assert key in CONFIG[section] or f"# {key} =" in (ROOT / "config.toml").read_text(), f"{name}: {section}.{key}"


@pytest.mark.parametrize("name", NAMES)
def test_targets_of_make_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in code((ROOT / name).read_text()):
        for target in re.findall(r"(?:^|\s)make ([a-z]+)", line):
            assert target in targets, f"{name}: make {target}"


@pytest.mark.parametrize("name", NAMES)
def test_benchmarks_exist(name: str) -> None:
    for module in re.findall(r"python -m (benchmarks(?:\.\w+)*)", (ROOT / name).read_text()):
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or place.is_dir(), f"{name}: {module}"


def test_the_tests_that_the_documents_name_exist() -> None:
    named = {name for document in NAMES for name in re.findall(r"`(test_\w+)`", (ROOT / document).read_text())}
    assert len(named) > 60
    assert named - TESTS == set()
