"""The page of ``mneme tree --html`` in a real browser: nothing is fetched, text stays text, and it can be used."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from models import transaction
from models.picture import Picture, read_picture
from tests.models.test_claims import commit, must_claim
from tests.support.browser import PROGRAM, Page, browser
from tests.support.snapshots import write
from tests.support.terminal import FORBIDDEN
from worker.picture.page import page as make_page

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on this machine")

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \u202eabc\u2066 \x1b[2J needle"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    with browser() as page:
        yield page


@pytest.fixture
def picture(engine: Engine) -> Picture:
    """A fold of five snapshots, the third of them hostile, and two snapshots after it."""
    write(engine, "s<b>\u202e", range(2))
    write(engine, "s<b>\u202e", [2], content=EVIL)
    write(engine, "s<b>\u202e", range(3, 5))
    commit(engine, must_claim(engine, "s<b>\u202e"))
    write(engine, "s<b>\u202e", range(5, 7))
    with transaction(engine) as connection:
        found = read_picture(connection, "s<b>\u202e")
    assert found is not None
    return found


@pytest.fixture
def opened(chromium: Page, picture: Picture, tmp_path: Path) -> Page:
    file = tmp_path / "page.html"
    file.write_bytes(make_page(picture))
    chromium.open(file.as_uri(), prefers_reduced_motion="reduce")
    return chromium


def text(page: Page, selector: str) -> str:
    return str(page.value(f"document.querySelector('{selector}').textContent"))


def states(page: Page) -> list[Any]:
    return list(page.value("[...document.querySelectorAll('#nodes > g')].map(g => g.classList[0])"))


def assert_quiet(page: Page) -> None:
    """No error, no dialog, and no request but that for the page."""
    methods = [event.get("method") for event in page.events]
    for unwanted in ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening"):
        assert unwanted not in methods, page.events
    assert methods.count("Network.requestWillBeSent") == 1


def test_a_click_shows_the_text_and_lights_the_lineage(opened: Page, picture: Picture) -> None:
    assert states(opened) == [node.state for node in picture.nodes]
    opened.click("#n2 rect")
    assert opened.value("document.querySelector('#node .text').innerText").startswith("</script><script>alert(1)")
    shown = text(opened, "#node")
    assert "\\u202eabc\\u2066 \\x1b[2J" in shown
    assert not FORBIDDEN.search(opened.value("document.body.innerText + document.title"))
    assert opened.value("document.querySelectorAll('img, #node script').length") == 0
    assert opened.value("[...document.querySelectorAll('#nodes .lit')].map(g => g.id)") == ["n2", "n7"]
    assert_quiet(opened)


def test_what_is_drawn_as_nothing_is_an_escape_but_where_a_word_needs_it(
    chromium: Page, engine: Engine, tmp_path: Path
) -> None:
    unseen = "\u180e\u00ad\u034f\u115f\u1160\u17b4\u200b\u200d\u2800\u3164\ufe0f\uffa0\U000e0100"
    england = "".join(chr(0xE0000 + ord(letter)) for letter in "gbeng") + "\U000e007f"
    needed = (
        f"❤\ufe0f 1\ufe0f\u20e3 👨\u200d👩\u200d👧 \U0001f3f4{england} می\u200cخواهم مُ\u200cحمد ه\u200c. क\u094d\u200dष क\u094d\u200d"
        " 葛\U000e0100 ไทย\u200bไทย ខ្មែរ\u200bខ្មែរ \u06dd"
    )
    unseen += england  # without its flag it is text that nobody sees
    write(engine, "unseen", [0], content="a".join(unseen) + "\n" + needed)
    with transaction(engine) as connection:
        picture = read_picture(connection, "unseen")
    assert picture is not None
    (tmp_path / "page.html").write_bytes(make_page(picture))
    chromium.open((tmp_path / "page.html").as_uri())
    chromium.click("#n0 rect")
    # Neither does a mark of the search tear a word into its parts.
    chromium.press("/")
    chromium.type("می")
    assert text(chromium, "#node mark") == "می"
    escapes = [character.encode("unicode_escape").decode() for character in unseen]
    assert text(chromium, "#node .text") == "a".join(escapes) + "\n" + needed


def test_the_keys(opened: Page) -> None:
    opened.value("document.getElementById('scroller').focus()")
    for key in ("ArrowDown", "Home", "ArrowRight", "ArrowUp", "Enter"):
        opened.press(key)
    assert text(opened, "#node h2").startswith("Level 2, messages 1 to 50")
    opened.press("ArrowDown")
    assert text(opened, "#node h2") == "Level 1, messages 1 to 10"
    assert opened.value("document.querySelector('#n0').getAttribute('aria-selected')") == "true"
    opened.press("Escape")
    assert opened.value("document.getElementById('node').hidden")
    opened.press("/")
    assert opened.value("document.activeElement.id") == "query"
    opened.press("Escape")
    opened.press("P")
    assert opened.value("document.getElementById('play').className") == "playing"
    assert_quiet(opened)


def test_the_search(opened: Page) -> None:
    opened.press("/")
    opened.type("NEEDLE")
    assert text(opened, "#found") in ("1 match", "2 matches")
    opened.press("Enter")
    assert text(opened, "#node mark") == "needle"
    opened.press("Escape")
    assert text(opened, "#found") == ""
    opened.type("decision6 (")
    assert text(opened, "#found") == "0 matches"
    assert_quiet(opened)


def test_the_replay(opened: Page, picture: Picture) -> None:
    def go(step: int) -> list[str]:
        opened.value(
            f"(() => {{ const s = document.getElementById('step'); s.value = {step};"
            " s.dispatchEvent(new Event('input')) })()"
        )
        return states(opened)

    assert go(0) == ["unborn"] * 8
    assert go(5) == ["active"] * 5 + ["unborn"] * 3
    tokens = sum(node.token_count for node in picture.nodes[:5])
    assert text(opened, "#totals") == f"5 active nodes, {tokens:,} tokens of {tokens:,} in all snapshots (100%)"
    assert go(6) == ["superseded"] * 5 + ["unborn"] * 2 + ["active"]
    assert go(8) == [node.state for node in picture.nodes]
    opened.click("#play")
    assert text(opened, "#totals").startswith("0 active nodes")
    opened.click("#play")
    assert opened.value("document.getElementById('play').className") == ""
    assert_quiet(opened)


def test_a_phone_has_no_horizontal_scroll(opened: Page) -> None:
    opened.resize(360, 720)
    for _ in range(2):
        assert opened.value("document.documentElement.scrollWidth") <= 360
        opened.value("document.getElementById('scroller').focus()")
        opened.press("ArrowDown")
        opened.press("Enter")
    assert opened.value("document.getElementById('details').getBoundingClientRect().bottom") == 720
