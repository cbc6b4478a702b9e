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
from support.programs import RUN_MAIN, TIME_LIMIT, TRAINING_LIBRARIES


@dataclass
class Running:
    """A server that runs, and the lines that it printed before it said so."""

    process: subprocess.Popen[str]
    port: int
    warnings: list[str]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the answer to a request."""
        sent = {"Content-Type": "application/json"}
        for name, value in headers.items():
            sent[name.replace("_", "-")] = value
        content = body
        if body is not None and not isinstance(body, bytes):
            content = json.dumps(body).encode()

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIME_LIMIT)
        with closing(connection):
            connection.request(method, path, content, sent)
            reply = connection.getresponse()
            found = reply.read()

        if reply.headers["Content-Type"] == "application/json":
            return reply.status, json.loads(found)
        return reply.status, found.decode()

    def predict(self, *texts: str, **options: Any) -> tuple[int, Any]:
        """The status and the answer to a request to predict."""
        return self.ask("POST", "/predict", {"texts": texts, **options})

    def said(self, what: str) -> str:
        """The next line of standard error that contains this; a server without one is killed."""
        patience = Timer(30, self.process.kill)
        patience.start()
        try:
            return next(line for line in self.process.stderr if what in line)
        finally:
            patience.cancel()

    def stop(self) -> int:
        """Stop the server; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.said("stopped; all accepted requests got their responses")
        return self.process.wait(30)


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., Running]]:
    """Starts a server of a model, after some lines of Python that change it."""
    started = []

    def run(model: Path, before: str = "", *options: str, host: str = "127.0.0.1") -> Running:
        command = [sys.executable, "-c", f"{before}\n{RUN_MAIN}", "serve", str(model)]
        command += ["--port", "0", "--host", host, *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        started.append(process)

        warnings = []
        for line in process.stderr:
            address = re.search(r" on http://[0-9.]+:(\d+); ", line)
            if address:
                return Running(process, int(address[1]), warnings)
            warnings.append(line.strip())
        raise AssertionError(warnings)

    yield run

    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="session")
def server(start, trained_run) -> Running:
    """A server of the trained run, where no library of training can be imported."""
    return start(
        trained_run.path, f"import sys; sys.modules.update(dict.fromkeys({TRAINING_LIBRARIES}))"
    )
