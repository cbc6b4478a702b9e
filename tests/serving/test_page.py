"""The page to try texts, in a real browser: it asks the server, colours words, and runs nothing of a text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
QUIET = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update")
HOSTILE = '😀 rain zebra <img src=x onerror="document.title=1">'
FETCH = "fetch('http://127.0.0.1:9/').then(() => 'open', () => 'closed')"


class Page:
    """A page of a browser that is steered through a pipe, by the Chrome DevTools protocol."""

    def __init__(self, asks: BinaryIO, replies: BinaryIO) -> None:
        self._asks, self._replies = asks, replies
        self._numbers, self._session = count(1), {}
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser replies; what it complains of meanwhile is kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | self._session
        self._asks.write(json.dumps(message).encode() + b"\0")
        while True:
            reply = json.loads(self._message())
            if reply.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                self.complaints.append(json.dumps(reply["params"]))
            if reply.get("id") == number:
                assert "error" not in reply, reply
                return reply["result"]

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, code: str) -> Any:
        """The value of an expression as soon as it is a true one."""
        deadline = time.monotonic() + 20
        while not (found := self.run(code)):
            assert time.monotonic() < deadline, (code, self.complaints)
            time.sleep(0.02)
        return found

    def _message(self) -> bytes:
        content = b""
        while not content.endswith(b"\0"):
            byte = self._replies.read(1)
            assert byte, "the browser has ended"
            content += byte
        return content[:-1]


@contextmanager
def opened(address: str, profile: Path) -> Iterator[Page]:
    """The page at an address."""
    (from_us, asks), (replies, to_us) = os.pipe(), os.pipe()
    pipes = f'exec "$@" 3<&{from_us} 4>&{to_us}'  # the numbers that the browser expects
    command = ["bash", "-c", pipes, "bash", BROWSER, "--headless", "--no-sandbox", *QUIET]
    command += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
    with subprocess.Popen(command, pass_fds=(from_us, to_us), stderr=subprocess.DEVNULL) as process:
        os.close(from_us)
        os.close(to_us)
        with os.fdopen(asks, "wb", buffering=0) as to_browser, os.fdopen(replies, "rb") as from_browser:
            try:
                page = Page(to_browser, from_browser)
                page.call("Page.navigate", url=address)
                page.until("document.readyState == 'complete' && location.href != 'about:blank'")
                yield page
            finally:
                process.kill()


def test_a_text_is_tried(server, classifier, tmp_path):
    """Its labels, its words in colours at their places, its HTML as characters; and what is wrong is said."""
    with opened(f"http://127.0.0.1:{server.port}/", tmp_path / "profile") as page:
        assert page.until("document.querySelector('#model').textContent.trim()").startswith("3 labels, model ")
        page.run(f"document.querySelector('#text').value = {json.dumps(HOSTILE)}")
        page.run("document.querySelector('#send').click()")
        page.until("document.querySelectorAll('article').length == 1")
        assert page.run("document.querySelector('.words').textContent") == HOSTILE
        assert page.run("document.querySelectorAll('article img, article script').length") == 0
        assert page.run("document.title") == "encoder-cls"
        words = page.run("[...document.querySelectorAll('.words span')].map((span) => span.textContent)")
        assert words[:4] == ["😀", "rain", "zebra", "<"]
        styles = "getComputedStyle(document.querySelectorAll('.words span')[1]).backgroundColor"
        assert page.run(styles).startswith("rgba(0, 95, 184, ")
        labels = page.run("[...document.querySelectorAll('td:first-child')].map((cell) => cell.textContent)")
        assert labels == [name for name, _ in classifier.predict([HOSTILE])[0].top(5)]
        assert "unknown words" in page.run("document.querySelector('article').textContent")
        assert page.complaints == []
        value = f"{{get: () => 'x'.repeat({1 << 20})}}"  # to lay so much text out takes a browser a minute
        page.run(f"Object.defineProperty(document.querySelector('#text'), 'value', {value}) && 0")
        page.run("document.querySelector('#send').click()")
        assert "larger than 1,048,576 bytes" in page.until("document.querySelector('#error').textContent")
        assert page.run("document.querySelector('#send').disabled") is False


def test_the_page_may_do_nothing_else(server, tmp_path):
    """Its policy refuses scripts of others, code from strings and other machines, and the browser heeds it."""
    with opened(f"http://127.0.0.1:{server.port}/", tmp_path / "profile") as page:
        page.run("document.body.insertAdjacentHTML('beforeend', '<img src=/x onerror=\"document.title=1\">')")
        page.run("{ const it = document.createElement('script'); it.textContent = 'document.title = 2';"
                 " document.body.append(it) }")  # fmt: skip
        assert page.run(FETCH) == "closed"
        assert page.run("document.title") == "encoder-cls"
        refused = [complaint for complaint in page.complaints if "Content Security Policy" in complaint]
        assert len(refused) >= 3
