"""Programs of this machine that respond over HTTP: how they start, and how they are asked."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from support.forked_programs import ForkedProgram
from support.programs import RUN_MAIN, TIME_LIMIT


def request(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """The status of the response to a request, and its content.

    Args:
        port: the port of the program on this machine.
        method: the method of the request.
        path: its path.
        body: bytes, or a value that is sent as JSON; None for no body.
        headers: its headers, with `_` in place of `-`.
    """
    sent_headers = {"Content-Type": "application/json"}
    for name, value in headers.items():
        sent_headers[name.replace("_", "-")] = value
    sent_body = body
    if body is not None and not isinstance(body, bytes):
        sent_body = json.dumps(body).encode()

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIME_LIMIT)
    with closing(connection):
        connection.request(method, path, sent_body, sent_headers)
        response = connection.getresponse()
        content = response.read()

    if response.headers["Content-Type"] == "application/json":
        return response.status, json.loads(content)
    return response.status, content.decode()


Program = subprocess.Popen[str] | ForkedProgram


class Started:
    """A program that has printed its address.

    Attributes:
        process: the program.
        address: the match of its address in the line that it printed.
        lines: the lines that it printed before.
    """

    def __init__(self, process: Program, address: re.Match[str], lines: list[str]) -> None:
        self.process = process
        self.address = address
        self.lines = lines


@contextmanager
def starting_programs() -> Iterator[Callable[..., Started]]:
    """A function that starts programs, which are killed at the end of the block."""
    processes: list[Program] = []

    def start(
        *arguments: object, address: str, before: str = "", imports_all: bool = False
    ) -> Started:
        """Start the program after some lines of Python, and wait until it prints its address.

        With `imports_all` it runs these lines before it imports anything, else in a fork.
        """
        if imports_all:
            command = [sys.executable, "-c", f"{before}\n{RUN_MAIN}", *map(str, arguments)]
            process: Program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        else:
            process = ForkedProgram(*arguments, before=before)
        processes.append(process)

        lines = []
        for line in process.stderr:
            found = re.search(address, line)
            if found:
                return Started(process, found, lines)
            lines.append(line.strip())
        raise AssertionError(lines)

    yield start

    for process in processes:
        process.kill()
        process.wait()
        process.stderr.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail if it never does."""
    deadline = time.monotonic() + TIME_LIMIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
