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

# The last line of a server that was stopped.
LAST_LINE = "stopped; all accepted requests got their responses"


@dataclass
class RunningServer:
    """A server that runs.

    Attributes:
        warnings: the lines that it printed before it said that it listens.
    """

    process: subprocess.Popen[str]
    port: int
    warnings: list[str]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status of the response to a request, and its content."""
        sent_headers = {"Content-Type": "application/json"}
        for name, value in headers.items():
            sent_headers[name.replace("_", "-")] = value
        sent_body = body
        if body is not None and not isinstance(body, bytes):
            sent_body = json.dumps(body).encode()

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIME_LIMIT)
        with closing(connection):
            connection.request(method, path, sent_body, sent_headers)
            response = connection.getresponse()
            content = response.read()

        if response.headers["Content-Type"] == "application/json":
            return response.status, json.loads(content)
        return response.status, content.decode()

    def predict(self, *texts: str, **options: Any) -> tuple[int, Any]:
        """The status of the response to a request to predict, and its content."""
        return self.ask("POST", "/predict", {"texts": texts, **options})

    def metrics(self) -> str:
        """The metrics in the text format of Prometheus."""
        status, text = self.ask("GET", "/metrics")
        assert status == 200
        return text

    def wait_for_line(self, part: str) -> str:
        """The next line of standard error with this part; a server without one is killed."""
        patience = Timer(30, self.process.kill)
        patience.start()
        try:
            for line in self.process.stderr:
                if part in line:
                    return line
        finally:
            patience.cancel()
        raise AssertionError(f"no line has {part!r}")

    def stop(self) -> int:
        """Stop the server; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.wait_for_line(LAST_LINE)
        return self.process.wait(30)


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., RunningServer]]:
    """Starts a server of a model, after some lines of Python that change it."""
    processes = []

    def run(model: Path, *options: str, before: str = "", host: str = "127.0.0.1") -> RunningServer:
        command = [sys.executable, "-c", f"{before}\n{RUN_MAIN}", "serve", str(model)]
        command += ["--port", "0", "--host", host, *options]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        processes.append(process)

        warnings = []
        for line in process.stderr:
            address = re.search(r" on http://[0-9.]+:(\d+); ", line)
            if address:
                return RunningServer(process, int(address[1]), warnings)
            warnings.append(line.strip())
        raise AssertionError(warnings)

    yield run

    for process in processes:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="session")
def server(start, trained_run) -> RunningServer:
    """A server of the trained run, where no library of training can be imported."""
    without_training = f"import sys; sys.modules.update(dict.fromkeys({TRAINING_LIBRARIES}))"
    return start(trained_run.path, before=without_training)


@pytest.fixture(scope="session")
def open_server(start, trained_run) -> RunningServer:
    """A server at an address that other machines can reach, by any name."""
    return start(trained_run.path, host="0.0.0.0")
