"""A program that runs the command line where modules are missing, as on another machine.

It is not imported but started, with JSON on standard input: `commands`, lists of arguments;
`forbidden`, the modules that cannot be imported; and `is_posix`, whether the names that only POSIX
systems have exist. It writes as JSON the `outcomes` of the commands, each an exit code, standard
output and standard error, and the forbidden modules that were `imported` all the same.
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import select
import signal
import sys
from collections.abc import Sequence

# Names that modules do not have on Windows.
POSIX_NAMES = {
    os: (
        "O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_CLOEXEC fchmod fchown chown fork forkpty getuid "
        "geteuid getgid uname sched_getaffinity sched_setaffinity sysconf statvfs posix_fadvise "
        "posix_fallocate pread pwrite mkfifo setsid killpg nice getloadavg wait3 wait4 confstr sync"
    ),
    mmap: (
        "MADV_DONTNEED MADV_WILLNEED MADV_SEQUENTIAL MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS "
        "PROT_READ PROT_WRITE"
    ),
    select: "poll epoll",
    signal: (
        "SIGHUP SIGKILL SIGALRM SIGUSR1 SIGUSR2 SIGPIPE SIGQUIT SIGCHLD alarm setitimer "
        "pthread_sigmask"
    ),
}


class Forbidding:
    """An import hook that refuses modules, and packages with all that is in them."""

    def __init__(self, forbidden: Sequence[str]) -> None:
        self._forbidden = forbidden

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise an `ImportError` for a forbidden module; leave all others to the next hook."""
        package = name.partition(".")[0]
        if name in self._forbidden or package in self._forbidden:
            raise ImportError(f"{name} is not to be imported")


def remove_posix(forbidden: Sequence[str]) -> None:
    """Remove modules and names that only POSIX systems have."""
    # These libraries look for the system that they are on when they are imported.
    import shutil
    import subprocess
    import tempfile

    import numpy as np
    import safetensors.numpy
    import tokenizers
    import typer.main

    del shutil, subprocess, tempfile, np, safetensors, tokenizers, typer

    for name in forbidden:
        sys.modules.pop(name, None)
    for module, names in POSIX_NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)


def run_command(arguments: Sequence[str]) -> tuple[int, str, str]:
    """The exit code of a command, and what it writes to standard output and standard error."""
    from encoder_cls.cli.app import main

    sys.argv = ["encoder-cls", *arguments]
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            exit_code = int(ended.code or 0)
    return exit_code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    if not request["is_posix"]:
        remove_posix(request["forbidden"])
    sys.meta_path.insert(0, Forbidding(request["forbidden"]))

    outcomes = [run_command(arguments) for arguments in request["commands"]]
    imported = sorted(set(request["forbidden"]) & set(sys.modules))
    json.dump({"outcomes": outcomes, "imported": imported}, sys.stdout)
