"""The command line in forks of one process that has imported it, which start at once.

A process of its own takes half a second of a processor to import the program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import get_context
from multiprocessing.connection import Connection

from encoder_cls.cli.app import main

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["encoder_cls.serving.server", "encoder_cls.extras.label.server"])


class ForkedProgram:
    """The program in a fork, which has the methods of `subprocess.Popen` that tests call.

    Attributes:
        stderr: what it writes to standard error.
    """

    def __init__(self, *arguments: object, before: str = "") -> None:
        reader, writer = FORKS.Pipe(duplex=False)
        words = [str(argument) for argument in arguments]
        self._process = FORKS.Process(target=_run, args=(words, before, writer))
        self._process.start()
        writer.close()
        self.stderr = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send it SIGKILL, unless it has ended."""
        self._process.kill()

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end; returns its exit code."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("encoder-cls", seconds)
        return self._process.exitcode


def _run(arguments: list[str], before: str, stderr: Connection) -> None:
    os.dup2(stderr.fileno(), 2)
    stderr.close()
    exec(before, {})
    sys.argv = ["encoder-cls", *arguments]
    main()
