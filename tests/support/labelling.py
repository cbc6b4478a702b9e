"""Pools, tables of labels, and the program `encoder-cls label` while it runs."""

from __future__ import annotations

import csv
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.local_servers import Program, request
from support.programs import TIME_LIMIT
from support.topics import labelled_texts

# Lines of Python that let `encoder-cls label` do without its model, whose process takes seconds to
# load its libraries.
WITHOUT_MODEL = """
from encoder_cls.extras.label.background_thread import BackgroundThread

BackgroundThread.start = BackgroundThread.join = lambda self: None
"""


def write_pool(path: Path, count: int = 60, *, seed: int = 3) -> dict[str, str]:
    """Write texts with an id each, and return the topic of each text."""
    texts = labelled_texts(count, seed=seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        for number, (text, _) in enumerate(texts):
            writer.writerow([number, text])
    return dict(texts)


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by column."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


@dataclass
class RunningLabel:
    """The program `encoder-cls label`, which runs.

    Attributes:
        address: the address of the page.
        lines: the lines that it printed before the address.
    """

    process: Program
    address: str
    lines: list[str]

    @property
    def port(self) -> int:
        return int(self.address.split(":")[2].split("/")[0])

    @property
    def token(self) -> str:
        return self.address.split("/")[3]

    def ask(self, path: str, fields: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the JSON of the response to a request, which is a POST with fields."""
        method = "GET" if fields is None else "POST"
        return request(self.port, method, path, fields, **headers)

    def act(self, name: str, fields: Any = None) -> dict[str, Any]:
        """The state after an action, which must succeed."""
        status, state = self.ask(f"/{self.token}/{name}", fields)
        assert status == 200, state
        return state

    def label(self, state: dict[str, Any], *labels: str) -> dict[str, Any]:
        """Label the text of a state, and return the new state."""
        key = state["text"]["key"]
        fields = {"key": key, "labels": labels, "shown_guess": [], "is_change": False}
        return self.act("label", fields)

    def stop(self) -> tuple[int, str]:
        """Stop the program; returns its exit code and what it printed at its end."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(TIME_LIMIT)
        return code, self.process.stderr.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
