"""Commands as processes, with their output and resources: real ones and, faster, forks."""

import ctypes
import gc
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

from encoder_cls.cli.app import main

COMMAND = (sys.executable, Path(__file__).with_name("faults.py"))
# Seconds that any command may take.
LONGEST = 120.0
# What Python audits of files.
FILE_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
# Of Linux's unshare.
CLONE_NEWNS = 0x20000
CLONE_NEWUSER = 0x10000000


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A process that has ended: its exit code, its output, its resources."""

    code: int  # of a signal, minus its number
    out: bytes
    err: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int

    def check(self, code=0):
        """Fail unless it ended with a code; returns itself."""
        assert self.code == code, f"exit {self.code}, expected {code}: {self.err[-1500:]}"
        assert "Traceback" not in self.err, self.err[-1500:]
        return self

    def check_error(self, code, named):
        """Fail unless it ended with a code and one error that names something; returns itself."""
        self.check(code)
        errors = [line for line in self.err.splitlines() if line.startswith("error:")]
        assert len(errors) == 1, self.err[-800:]
        assert named in self.err, f"{named!r} is not named: {self.err[-800:]}"
        return self


class Process:
    """A running process whose output goes to files."""

    def __init__(self, pid, out, err):
        self.pid = pid
        self.began = time.monotonic()
        self.ended = None
        self._out = out
        self._err = err

    def signal(self, number):
        """Send a signal, unless the process has ended."""
        if self.ended is None:
            os.kill(self.pid, number)

    def said(self):
        """Its standard error so far."""
        if self.ended:
            return self.ended.err
        return self._err.read_text(errors="replace")

    def runs_after(self, seconds):
        """Whether it still runs so many seconds after its start."""
        while self.ended is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            running = time.monotonic() - self.began
            if pid:
                self.ended = Ended(
                    code=os.waitstatus_to_exitcode(status),
                    out=self._out.read_bytes(),
                    err=self.said(),
                    seconds=running,
                    cpu_seconds=usage.ru_utime + usage.ru_stime,
                    peak_bytes=usage.ru_maxrss * 1024,
                )
                shutil.rmtree(self._out.parent)
                return False

            if running > seconds:
                return True
            time.sleep(0.002)
        return False

    def end(self):
        """Wait for its end, and return that; a process that does not end is killed, which fails."""
        if self.runs_after(LONGEST):
            self.kill()
            raise AssertionError(f"still running after {LONGEST:.0f} s: {self.said()[-500:]}")
        return self.ended

    def kill(self, *, after=0.0):
        """Send SIGKILL so many seconds after its start; returns how it ended."""
        if self.runs_after(after):
            self.signal(signal.SIGKILL)
            self.runs_after(LONGEST)
        return self.ended


def start(arguments, *, cwd, environment=()):
    """Start the real command line in a process of its own."""
    out, err = _output_files()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            env=os.environ | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
    process.returncode = 0  # `Process` waits for it
    return Process(process.pid, out, err)


def fork(arguments, *, cwd, prepare=lambda: None, stdin=b""):
    """Start the command line in a copy of this process, which has loaded all libraries.

    `prepare` is called in it first.
    """

    def run():
        os.chdir(cwd)
        sys.argv = ["encoder-cls", *map(os.fsdecode, arguments)]
        prepare()
        main()

    return fork_call(run, stdin=stdin)


def fork_call(function, *, stdin=b""):
    """Call a function in a copy of this process.

    It ends with 0, with the code of a `SystemExit`, or with 70 for any other exception.
    """
    out, err = _output_files()
    pid = os.fork()
    if pid == 0:
        _run_child(function, out, err, stdin)
    return Process(pid, out, err)


def _run_child(function, out, err, stdin):
    """Call a function with other streams, and end this process."""
    code = 70
    try:
        gc.freeze()
        with tempfile.TemporaryFile() as source, out.open("wb") as stdout, err.open("wb") as stderr:
            source.write(stdin)
            source.seek(0)
            for number, file in enumerate((source, stdout, stderr)):
                os.dup2(file.fileno(), number)
        _open_streams()

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


def _open_streams():
    """Give this process streams of its own, in place of pytest's."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115


def _output_files():
    folder = Path(tempfile.mkdtemp(prefix="process-"))
    out = folder / "out"
    err = folder / "err"
    # A process may be killed before it has opened them.
    out.touch()
    err.touch()
    return out, err


def at_file_event(number, action, *, folder="", temporary=""):
    """Call an action just before this process touches names under a folder the `number`-th time.

    With `temporary`, only the opening of names with this beginning counts.
    """
    seen = 0

    def counts(event, arguments):
        if event not in FILE_EVENTS:
            return False
        path = str(arguments[0])
        if not path.startswith(str(folder)):
            return False
        if temporary and (event != "open" or not Path(path).name.startswith(temporary)):
            return False
        return event != "open" or is_writing(arguments[2])

    def is_writing(flags):
        return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))

    def hook(event, arguments):
        nonlocal seen
        if not counts(event, arguments):
            return
        seen += 1
        if seen == number:
            action()

    sys.addaudithook(hook)


def kill_at_file_event(number, folder):
    """End this process with SIGKILL just before it touches names under a folder for that time."""
    at_file_event(number, lambda: os.kill(os.getpid(), signal.SIGKILL), folder=folder)


def limit_memory(num_bytes):
    """Refuse this process more than so many additional bytes of memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + num_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def with_mounts(mounts, function):
    """Call a function in a process with mounts of its own, given as arguments of `mount`.

    Its assertions are raised here.
    """

    def call():
        # The names of user and group are others after the call.
        user_map = f"0 {os.getuid()} 1"
        group_map = f"0 {os.getgid()} 1"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")

        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(user_map)
        Path("/proc/self/gid_map").write_text(group_map)
        for arguments in mounts:
            mount(*arguments)
        function()

    ended = fork_call(call).end()
    last_line = ended.err.strip().rpartition("\n")[2]
    if "unshare" in last_line or "mount:" in last_line:
        pytest.skip(f"no mounts without rights here: {last_line}")
    assert ended.code == 0, ended.err[-1500:]


def mount(*arguments):
    """Mount something in this process's namespace."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.returncode, done.stderr.strip())


def small_disk(folder, kilobytes):
    """The arguments of `mount` that make a folder a disk of a size."""
    return "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder
