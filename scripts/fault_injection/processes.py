"""Commands as processes: real ones, and forks of this one, which start in no time; each with what it left behind."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from encoder_cls.cli import main

COMMAND = (sys.executable, "-c", "from encoder_cls.cli import main; main()")
LONGEST = 120.0  # seconds that any command may take
Arguments = Sequence[str | bytes | Path]
FILE_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of a process: its exit code (of a signal, minus its number), its output, what it used."""

    code: int
    out: bytes
    err: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int

    @property
    def message(self) -> str:
        """The last line on standard error."""
        return next(reversed(self.err.strip().splitlines()), "")


class Process:
    """A running process whose output goes to files."""

    def __init__(self, pid: int, out: Path, err: Path) -> None:
        self.pid, self.began = pid, time.monotonic()
        self._out, self._err = out, err
        self._ended: Ended | None = None

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self._ended is None:
            os.kill(self.pid, number)

    def said(self) -> str:
        """What it has written to standard error so far."""
        return self._err.read_text(errors="replace")

    def wait(self, at_most: float = LONGEST) -> Ended | None:
        """Wait until the process has ended; none if it still runs after so many seconds."""
        while self._ended is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            seconds = time.monotonic() - self.began
            if pid:
                self._ended = Ended(
                    code=os.waitstatus_to_exitcode(status),
                    out=self._out.read_bytes(),
                    err=self._err.read_text(errors="replace"),
                    seconds=seconds,
                    cpu_seconds=usage.ru_utime + usage.ru_stime,
                    peak_bytes=usage.ru_maxrss * 1024,
                )
            elif seconds > at_most:
                return None
            else:
                time.sleep(0.002)
        return self._ended

    def end(self) -> Ended:
        """Wait for the end; a process that never comes to it is killed, and that is a failure."""
        ended = self.wait()
        if ended is None:
            self.signal(signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise AssertionError(f"still running after {LONGEST:.0f} s: {self._err.read_text(errors='replace')[-500:]}")
        return ended


def start(arguments: Arguments, *, cwd: Path, environment: Mapping[str, str] | None = None) -> Process:
    """The real command line in a process of its own."""
    out, err = _output_files()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
    process.returncode = 0  # `Process` waits for it
    return Process(process.pid, out, err)


def fork(
    arguments: Arguments, *, cwd: Path, prepare: Callable[[], object] = lambda: None, stdin: bytes = b""
) -> Process:
    """The command line in a copy of this process, where all libraries are loaded already.

    Args:
        arguments: of `encoder-cls`.
        cwd: the current folder of the command.
        prepare: called in the new process first.
        stdin: what it can read.
    """

    def run() -> None:
        os.chdir(cwd)
        sys.argv = ["encoder-cls", *map(os.fsdecode, arguments)]
        prepare()
        main()

    return fork_call(run, stdin=stdin)


def fork_call(function: Callable[[], object], *, stdin: bytes = b"") -> Process:
    """A function in a copy of this process; it ends with 0, with the code of a `SystemExit`, or with 70."""
    out, err = _output_files()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _run_child(function, out, err, stdin)
    return Process(pid, out, err)


def _run_child(function: Callable[[], object], out: Path, err: Path, stdin: bytes) -> NoReturn:
    code = 70
    try:
        gc.freeze()
        with tempfile.TemporaryFile() as source, out.open("wb") as stdout, err.open("wb") as stderr:
            source.write(stdin)
            source.seek(0)
            for number, file in enumerate((source, stdout, stderr)):
                os.dup2(file.fileno(), number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        function()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _output_files() -> tuple[Path, Path]:
    folder = Path(tempfile.mkdtemp(prefix="process-"))
    out, err = folder / "out", folder / "err"
    out.touch()  # a process may be killed before it has opened them
    err.touch()
    return out, err


def kill_at_file_event(number: int, folder: Path) -> None:
    """End this process with SIGKILL just before it touches names under a folder for the `number`-th time."""
    seen = 0
    inside = str(folder)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in FILE_EVENTS and str(arguments[0]).startswith(inside):
            if event == "open" and not _is_writing(arguments):
                return
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _is_writing(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def limit_memory(num_bytes: int) -> None:
    """Refuse this process more memory than so many bytes beside what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + num_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def mount_alone(*mounts: Sequence[str | Path]) -> None:
    """Mount something that only this process and its children see; needs no rights.

    Args:
        mounts: arguments of `mount`, one after the other.

    Raises:
        OSError: this system does not allow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{name}").write_text(line)
    for arguments in mounts:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(done.returncode, done.stderr.strip())
