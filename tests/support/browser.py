"""A real browser, controlled through pipes by the Chrome DevTools protocol."""

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
from typing import Any

import pytest
from support.programs import TIME_LIMIT

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def installed_browser() -> str | None:
    """The path of the first browser that is installed."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    return None


BROWSER = installed_browser()
CACHED_AXE = Path(__file__).parents[2] / ".cache/node_modules/axe-core/axe.min.js"
AXE = Path(os.environ.get("AXE_CORE") or CACHED_AXE)

needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
needs_axe = pytest.mark.skipif(
    not (BROWSER and AXE.exists()),
    reason="needs Chromium or Chrome, and axe-core: see CONTRIBUTING.md",
)

# A text that would change the title of a page that took it for HTML.
HOSTILE = '😀 rain zebra <img src=x onerror="document.title=1">'
# Code that a page must not be able to run: it asks another machine, and adds an event handler.
ASKS_ANOTHER_MACHINE = "fetch('http://127.0.0.1:9/').then(() => 'open', () => 'closed')"
ADDS_A_HANDLER = (
    "document.body.insertAdjacentHTML('beforeend', '<img src=/x onerror=\"document.title=1\">')"
)

OPTIONS = (
    "--headless",
    # A window that nobody uses would be drawn again and again.
    "--no-startup-window",
    "--no-sandbox",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """A browser that runs while in a `with` statement, and shows pages one after the other."""

    def __init__(self, profile: Path) -> None:
        browser_reads, requests = os.pipe()
        replies, browser_writes = os.pipe()
        # The browser expects the pipes at these numbers.
        redirect = f'exec "$@" 3<&{browser_reads} 4>&{browser_writes}'
        command = ["bash", "-c", redirect, "bash", BROWSER, *OPTIONS, f"--user-data-dir={profile}"]
        pipes = (browser_reads, browser_writes)
        self._process = subprocess.Popen(command, pass_fds=pipes, stderr=subprocess.DEVNULL)
        os.close(browser_reads)
        os.close(browser_writes)
        self._requests = os.fdopen(requests, "wb", buffering=0)
        self._replies = os.fdopen(replies, "rb")
        self._numbers = count(1)
        # What each page complained about, by its session.
        self._complaints: dict[str, list[str]] = {}

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._requests.close()
        self._replies.close()

    def call(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The reply to a command to the browser, or to the page of a session."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._requests.write(json.dumps(message).encode() + b"\0")

        while True:
            reply = self._next_message()
            if reply.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                complaints = self._complaints.setdefault(reply["sessionId"], [])
                complaints.append(json.dumps(reply["params"]))
            if reply.get("id") == number:
                assert "error" not in reply, reply
                return reply["result"]

    @contextmanager
    def opened(self, address: str) -> Iterator[Page]:
        """The page at an address, in a tab of its own.

        All tabs have one profile: no page stores anything, and a profile for each page would take
        longer than most tests of a page.
        """
        target = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", flatten=True, **target)
        session = attached["sessionId"]
        try:
            page = Page(self, session, self._complaints.setdefault(session, []))
            page.open(address)
            yield page
        finally:
            self.call("Target.closeTarget", **target)

    def _next_message(self) -> dict[str, Any]:
        content = bytearray()
        while not content.endswith(b"\0"):
            byte = self._replies.read(1)
            assert byte, "the browser has ended"
            content += byte
        return json.loads(content[:-1])


class Page:
    """A page of a browser.

    Attributes:
        complaints: errors, warnings and refusals so far.
    """

    def __init__(self, browser: Browser, session: str, complaints: list[str]) -> None:
        self._browser = browser
        self._session = session
        self.complaints = complaints
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The browser's reply to a command about this page."""
        return self._browser.call(method, session=self._session, **parameters)

    def open(self, address: str) -> None:
        """Load another address, and wait for it."""
        self.call("Page.navigate", url=address)
        self.until("document.readyState == 'complete' && location.href != 'about:blank'")

    def resize(self, width: int) -> None:
        """Set the width of the page in pixels, which may be less than that of a real window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Ask for `light` or `dark` colours."""
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def texts_of(self, selector: str) -> list[str]:
        """The texts of the elements that a selector finds."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return self.run(f"{found}.map((element) => element.textContent)")

    def until(self, code: str) -> Any:
        """The value of an expression as soon as it is a true one."""
        deadline = time.monotonic() + TIME_LIMIT
        while True:
            found = self.run(code)
            if found:
                return found
            assert time.monotonic() < deadline, (code, self.complaints)
            time.sleep(0.02)


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with a page, in light colours and then in dark ones."""
    page.resize(1200)
    page.run(f"{AXE.read_text(encoding='utf-8')}; 0")
    found = []
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        result = page.run("axe.run().then((found) => JSON.stringify(found.violations))")
        for rule in json.loads(result):
            for node in rule["nodes"]:
                failure = f"{rule['id']}: {node['html']}: {node['failureSummary']}"
                found.append(f"{scheme}: {failure}")
    return found
