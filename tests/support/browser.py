"""A headless Chromium, driven over the pipe of its own debugging protocol: no port, no library.

Its address space is its own: a new profile each time, and no name that it could resolve.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions", "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe",
]  # fmt: skip
_KEYS = {
    "Enter": 13,
    "Escape": 27,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


class Page:
    """A page of the browser. ``events`` are all that it told of since it was opened."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        sent = json.dumps(message).encode() + b"\0"
        while sent:
            sent = sent[os.write(self._write, sent) :]
        until = time.monotonic() + 15
        while True:
            answer = self._next(until - time.monotonic())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]  # type: ignore[no-any-return]
            self.events.append(answer)

    def _next(self, timeout_seconds: float) -> dict[str, Any]:
        until = time.monotonic() + timeout_seconds
        while b"\0" not in self._rest:
            ready, _, _ = select([self._read], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser says nothing"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser is gone"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def open(self, url: str, *, width: int = 1280, height: int = 800, **media: str) -> None:
        if self._session is None:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.resize(width, height)
        self.events.clear()
        self.call("Page.navigate", url=url)
        until = time.monotonic() + 15
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(until - time.monotonic()))

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives, as JSON can tell it."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def click(self, selector: str) -> None:
        x, y = self.value(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        known = {"key": key, "windowsVirtualKeyCode": _KEYS.get(key, ord(key[0].upper()))}
        self.call("Input.dispatchKeyEvent", type="keyDown", **known, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def browser() -> Iterator[Page]:
    assert PROGRAM, "there is no Chromium on this machine"
    to_read, we_write = os.pipe()
    we_read, to_write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="mneme-test-browser-", ignore_cleanup_errors=True) as profile:
        # The browser reads from 3 and writes to 4. dash knows descriptors of one digit only, so Python moves them.
        # First out of the way of 3 and 4: a descriptor moved onto itself would be closed by exec.
        moves = (
            "import os, sys; from fcntl import F_DUPFD, fcntl; a, b = (fcntl(int(n), F_DUPFD, 10) for n in sys.argv[1:3]);"
            " os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[3], sys.argv[3:])"
        )
        process = subprocess.Popen(
            [sys.executable, "-ISc", moves, str(to_read), str(to_write), PROGRAM, *_OPTIONS, f"--user-data-dir={profile}"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        page = Page(we_write, we_read)
        try:
            yield page
        finally:
            with suppress(OSError, AssertionError):
                page._session = None
                page.call("Browser.close")
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
            os.close(we_write)
            os.close(we_read)
