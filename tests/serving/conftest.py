"""A server in a process of its own, on a free port of this machine alone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from support.local_servers import Program, request, starting_programs
from support.programs import TRAINING_LIBRARIES

# The last line of a server that was stopped.
LAST_LINE = "stopped; all accepted requests got their responses"


@dataclass
class RunningServer:
    """A server that runs.

    Attributes:
        warnings: the lines that it printed before it said that it listens.
    """

    process: Program
    port: int
    warnings: list[str]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status of the response to a request, and its content."""
        return request(self.port, method, path, body, **headers)

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
    with starting_programs() as start_program:

        def run(
            model: Path,
            *options: str,
            before: str = "",
            host: str = "127.0.0.1",
            imports_all: bool = False,
        ) -> RunningServer:
            started = start_program(
                "serve",
                model,
                "--port",
                0,
                "--host",
                host,
                *options,
                address=r" on http://[0-9.]+:(\d+); ",
                before=before,
                imports_all=imports_all,
            )
            return RunningServer(started.process, int(started.address[1]), started.lines)

        yield run


@pytest.fixture(scope="session")
def server(start, trained_run) -> RunningServer:
    """A server of the trained run, where no library of training can be imported."""
    without_training = f"import sys; sys.modules.update(dict.fromkeys({TRAINING_LIBRARIES}))"
    return start(trained_run.path, before=without_training, imports_all=True)


@pytest.fixture(scope="session")
def open_server(start, trained_run) -> RunningServer:
    """A server at an address that other machines can reach, by any name."""
    return start(trained_run.path, host="0.0.0.0")
