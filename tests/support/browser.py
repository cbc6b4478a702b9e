"""A real browser for tests, steered through a pipe by the Chrome DevTools protocol."""

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
from support.programs import TIME_LIMIT

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
AXE = Path(
    os.environ.get("AXE_CORE")
    or Path(__file__).parents[2] / ".cache/node_modules/axe-core/axe.min.js"
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
needs_axe = pytest.mark.skipif(
    not (BROWSER and AXE.exists()),
    reason="needs Chromium or Chrome, and axe-core: see CONTRIBUTING.md",
)
OPTIONS = (
    *(
        "--headless",
        "--no-sandbox",
        "--enable-unsafe-swiftshader",
        "--disable-quic",
        "--no-first-run",
    ),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--remote-debugging-pipe",
    ),
)


class Page:
    """A page of a browser."""

    def __init__(self, asks: BinaryIO, replies: BinaryIO) -> None:
        self._asks, self._replies = asks, replies
        self._numbers, self._session = count(1), {}
        self.complaints: list[str] = []  # errors, warnings and refusals so far
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {
            "sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)[
                "sessionId"
            ]
        }
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the browser's reply, and keep its complaints."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters} | self._session
        self._asks.write(json.dumps(message).encode() + b"\0")
        while True:
            reply = json.loads(b"".join(iter(self._byte, b"\0")))
            if reply.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                self.complaints.append(json.dumps(reply["params"]))
            if reply.get("id") == number:
                assert "error" not in reply, reply
                return reply["result"]

    def open(self, address: str) -> None:
        """Load another address, and wait for it."""
        self.call("Page.navigate", url=address)
        self.until("document.readyState == 'complete' && location.href != 'about:blank'")

    def resize(self, width: int) -> None:
        """Give the window another width in pixels, also one that Chromium refuses to real windows."""
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

    def until(self, code: str) -> Any:
        """The value of an expression as soon as it is a true one."""
        deadline = time.monotonic() + TIME_LIMIT
        while not (found := self.run(code)):
            assert time.monotonic() < deadline, (code, self.complaints)
            time.sleep(0.02)
        return found

    def _byte(self) -> bytes:
        byte = self._replies.read(1)
        assert byte, "the browser has ended"
        return byte


@contextmanager
def opened(address: str, profile: Path) -> Iterator[Page]:
    """The page at an address."""
    (from_us, asks), (replies, to_us) = os.pipe(), os.pipe()
    pipes = f'exec "$@" 3<&{from_us} 4>&{to_us}'  # the numbers that the browser expects
    command = ["bash", "-c", pipes, "bash", BROWSER, *OPTIONS, f"--user-data-dir={profile}"]
    with subprocess.Popen(command, pass_fds=(from_us, to_us), stderr=subprocess.DEVNULL) as process:
        os.close(from_us)
        os.close(to_us)
        with (
            os.fdopen(asks, "wb", buffering=0) as to_browser,
            os.fdopen(replies, "rb") as from_browser,
        ):
            try:
                page = Page(to_browser, from_browser)
                page.open(address)
                yield page
            finally:
                process.kill()


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with a page, in light colours and then in dark ones."""
    page.resize(1200)
    page.run(f"{AXE.read_text(encoding='utf-8')}; 0")
    found = []
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        for rule in json.loads(
            page.run("axe.run().then((found) => JSON.stringify(found.violations))")
        ):
            found += [
                f"{scheme}: {rule['id']}: {node['html']}: {node['failureSummary']}"
                for node in rule["nodes"]
            ]
    return found
