"""A server in a process of its own, on a free port of this machine alone."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from support.programs import TIME_LIMIT

BLOCKED = [
    "torch",
    "scipy",
    "sklearn",
    "pyarrow",
    "pydantic",
    "pandas",
    "datasets",
    "yaml",
    "jinja2",
    "matplotlib",
]


@dataclass
class Running:
    """A server that runs, and what it said before."""

    process: subprocess.Popen[str]
    port: int
    warnings: list[str]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        sent = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): it for name, it in headers.items()
        }
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIME_LIMIT)
        ) as connection:
            connection.request(method, path, content, sent)
            reply = connection.getresponse()
            found = reply.read()
        is_json = reply.headers["Content-Type"] == "application/json"
        return reply.status, json.loads(found) if is_json else found.decode()

    def predict(self, *texts: str, **options: Any) -> tuple[int, Any]:
        return self.ask("POST", "/predict", {"texts": texts, **options})

    def said(self, what: str) -> str:
        """The next line of standard error that holds this; the process is not waited for without an end."""
        patience = Timer(30, self.process.kill)
        patience.start()
        try:
            return next(line for line in self.process.stderr if what in line)
        finally:
            patience.cancel()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.said("stopped; all accepted requests are answered")
        return self.process.wait(30)


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., Running]]:
    """Starts a server of a model, after some lines of Python that change its limits."""
    started = []

    def run(model: Path, before: str = "", *options: str, host: str = "127.0.0.1") -> Running:
        code = f"{before}\nfrom encoder_cls.cli.app import main; main()"
        command = [
            sys.executable,
            "-c",
            code,
            "serve",
            str(model),
            "--port",
            "0",
            "--host",
            host,
            *options,
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started.append(process)
        said = []
        for line in process.stderr:
            if found := re.search(r" on http://[0-9.]+:(\d+); ", line):
                return Running(process, int(found[1]), said)
            said.append(line.strip())
        raise AssertionError(said)

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="session")
def server(start, trained_run) -> Running:
    """A server of the trained run, where no library of training can be imported."""
    return start(trained_run.path, f"import sys; sys.modules.update(dict.fromkeys({BLOCKED}))")
