"""Cases about disks: every system call that writes is killed or refused; disks are full, or read-only."""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import saver
from cases import Case, Skipped
from processes import Ended, fork, fork_call, mount_alone
from samples import Workspace, assert_mendable, curves, engine_of, fingerprint, predict
from tensorboard.summary.writer.event_file_writer import EventFileWriter

CALLS = "mkdir,openat,write,fsync,rename,unlink,unlinkat,rmdir,ftruncate"
REFUSABLE = {"mkdir", "openat", "write", "fsync", "rename"}  # removals that fail leave more, not less
SAVER = Path(__file__).parent / "saver.py"
ERRORS = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}


@dataclass(frozen=True)
class Call:
    """The `number`-th call of one kind that an operation makes on one path."""

    operation: str
    name: str
    path: str
    number: int


def kill_at_call(space: Workspace, _draw: random.Random, number: int) -> None:
    """SIGKILL as a system call begins: the old version loads, or the new one, whole."""
    call = _calls(space)[number]
    folder = _begun(space, call.operation)
    _change(space, folder, call, "signal=KILL")
    assert saver.read(call.operation, folder) in {1, 2}
    saver.write(call.operation, folder, 2)  # and the next process is not in the way of what is left
    assert saver.read(call.operation, folder) == 2


def refuse_call(space: Workspace, _draw: random.Random, number: int) -> None:
    """ENOSPC or EIO from a system call: one line that names the path, the old version, nothing temporary."""
    call = _refusable(space)[number // len(ERRORS)]
    error = sorted(ERRORS)[number % len(ERRORS)]
    folder = _begun(space, call.operation)
    ended = _change(space, folder, call, f"error={error}")
    version = saver.read(call.operation, folder)
    assert not list(folder.rglob(".tmp-*")), f"{call}: something temporary is left"
    if ended.returncode == 0:
        assert version == 2, f"{call}: said nothing, did nothing"
        return
    assert_mendable(_as_ended(ended), code=1, named=ERRORS[error])
    assert str(folder) in ended.stderr, ended.stderr


def flush_order(space: Workspace, _draw: random.Random, number: int) -> None:
    """Every file is flushed between its last write and the rename, and its folder after the rename."""
    operation = saver.OPERATIONS[number]
    lines = _traced(space, operation)
    flushed: set[str] = set()
    unflushed_renames: set[str] = set()
    renames = 0
    for name, path, target in lines:
        if name in {"write", "ftruncate"}:
            flushed.discard(path)
        elif name == "fsync":
            flushed.add(path)
            unflushed_renames = {renamed for renamed in unflushed_renames if str(Path(renamed).parent) != path}
        elif name == "rename":
            renames += 1
            written = [other for one, other, _ in lines if one == "write" and (other + "/").startswith(path + "/")]
            assert all(other in flushed for other in written), f"{path} gets its name before it is on disk"
            unflushed_renames.add(target)
        elif name == "unlinkat" and operation == "checkpoint":
            assert not unflushed_renames, "an old checkpoint is removed before the new one's name is on disk"
    assert renames, "nothing is renamed"
    assert not unflushed_renames, f"{unflushed_renames}: the folder is not flushed"


def full_disk(space: Workspace, _draw: random.Random, number: int) -> None:
    """A run on a disk of 20 to 1,000 kB: it ends well, or in one line that names a path, and what is there loads."""
    kilobytes = round(20 * 50 ** (number / 29))
    reference, run = space.reference("default"), space.new_path("full")
    run.mkdir()

    def on_small_disk() -> None:
        mount_alone(["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", run])
        ended = fork(space.train("default", run), cwd=space.folder).end()
        assert not list(run.rglob(".tmp-*")), "something temporary is left"
        if ended.code == 0:
            warned = "goes on without TensorBoard" in ended.err
            one, other = fingerprint(run), fingerprint(reference)
            assert one["files"] == other["files"]
            assert warned or one["curves"] == other["curves"]
            return
        assert_mendable(ended, code=1, named=str(run))
        enlarged = subprocess.run(["mount", "-o", "remount,size=8m", run], capture_output=True, check=False)
        assert enlarged.returncode == 0
        space.finish("default", run)

    in_namespace(on_small_disk)


def full_tensorboard(space: Workspace, draw: random.Random, number: int) -> None:
    """No room for TensorBoard's files alone: one warning, and the run is what it would have been."""
    reference, run, small = space.reference("default"), space.new_path("no-curves"), space.new_path("small-disk")
    small.mkdir()
    pages = draw.randint(1, 6) if number else 1

    def write_there() -> None:
        # The event file is in the run's folder, among files that are to have room.
        write = EventFileWriter.__init__
        EventFileWriter.__init__ = lambda self, _folder, *more, **options: write(self, str(small), *more, **options)

    def on_small_disk() -> None:
        mount_alone(["-t", "tmpfs", "-o", f"size={4 * pages}k", "tmpfs", small])
        ended = fork(space.train("default", run), cwd=space.folder, prepare=write_there).end()
        assert ended.code == 0, ended.err
        assert "Traceback" not in ended.err, ended.err
        one, other = fingerprint(run), fingerprint(reference)
        assert one["files"] == other["files"]
        assert one["metrics"] == other["metrics"]
        assert ended.err.count("goes on without TensorBoard") == (curves(small) != other["curves"]), ended.err

    in_namespace(on_small_disk)


def read_only(space: Workspace, _draw: random.Random, number: int) -> None:
    """A folder that cannot be written to: train ends before its first step, eval and predict work."""
    finished, begun = space.copy(space.reference("labels")), space.copy(space.reference("labels"))
    (begun / "model" / "README.md").unlink()
    empty = space.new_path("empty")
    empty.mkdir()

    def mounted_read_only() -> None:
        mounts: list[list[str | Path]] = []
        for folder in (finished, begun, empty):
            mounts += [["--bind", folder, folder], ["-o", "remount,ro,bind", folder]]
        mount_alone(*mounts)
        target = [begun, empty, empty / "new"][number % 3]
        ended = fork(space.train("labels", target), cwd=space.folder).end()
        assert_mendable(ended, code=1, named="Read-only file system")
        assert "step " not in ended.err, ended.err
        engine = engine_of(number, kinds=3)
        assert fork(predict(finished, engine, "some rain"), cwd=space.folder).end().code == 0
        ended = fork(["eval", finished], cwd=space.folder).end()
        assert ended.code == 0, ended.err
        assert b"accuracy" in ended.out
        assert "Read-only file system" in ended.err

    in_namespace(mounted_read_only)


@functools.cache
def _traced(space: Workspace, operation: str) -> list[tuple[str, str, str]]:
    """The system calls of an operation inside its folder, in order: name, path, and a rename's new path."""
    folder, log = _begun(space, operation), space.new_path("strace.log")
    _strace(["-f", "-y", "-e", f"trace={CALLS}", "-o", str(log)], operation, folder)
    found = []
    for line in log.read_text(errors="replace").splitlines():
        match = re.search(r"(\w+)\((.*)\) += \d", line)
        if not match or str(folder) not in match[2] or (match[1] == "openat" and "O_CREAT" not in match[2]):
            continue
        paths = [
            path.replace(str(folder), "FOLDER") for path in re.findall(rf"{re.escape(str(folder))}[^>\",]*", match[2])
        ]
        if match[1] == "unlinkat" and len(paths) == 1 and '"' in match[2]:
            paths[0] += "/" + match[2].split('"')[1]
        found.append((match[1], paths[0], paths[-1]))
    assert found, f"{operation}: strace saw nothing"
    return found


@functools.cache
def _calls(space: Workspace) -> list[Call]:
    calls = []
    for operation in saver.OPERATIONS:
        seen: Counter[tuple[str, str]] = Counter()
        for name, path, _ in _traced(space, operation):
            seen[name, path] += 1
            calls.append(Call(operation, name, path, seen[name, path]))
    return calls


def _refusable(space: Workspace) -> list[Call]:
    return [call for call in _calls(space) if call.name in REFUSABLE]


def _begun(space: Workspace, operation: str) -> Path:
    folder = space.new_path(operation)
    folder.mkdir()
    saver.write(operation, folder, 1)
    return folder


def _change(space: Workspace, folder: Path, call: Call, injection: str) -> subprocess.CompletedProcess[str]:
    path = call.path.replace("FOLDER", str(folder))
    # Calls that take a folder's descriptor and a name (unlinkat) are matched by the folder.
    watched = str(Path(path).parent) if call.name == "unlinkat" else path
    options = ["-P", watched, "-e", f"trace={call.name}", "-e", f"inject={call.name}:{injection}:when={call.number}"]
    return _strace(["-f", "-o", str(space.new_path("strace.log")), *options], call.operation, folder)


def _strace(options: list[str], operation: str, folder: Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which("strace"):
        raise Skipped("strace is not installed")
    return subprocess.run(
        ["strace", *options, sys.executable, str(SAVER), operation, str(folder), "change"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _as_ended(done: subprocess.CompletedProcess[str]) -> Ended:
    return Ended(code=done.returncode, out=b"", err=done.stderr, seconds=0, cpu_seconds=0, peak_bytes=0)


def in_namespace(function: Callable[[], object]) -> None:
    """Call a function in a process with mounts of its own; what it asserts is asserted here."""
    ended = fork_call(function).end()
    if "unshare" in ended.message or "mount:" in ended.message:
        raise Skipped(f"no mounts without rights here: {ended.message}")
    assert ended.code == 0, ended.err[-1500:]


CASES = {
    "kill-every-call": Case(
        "SIGKILL at each writing system call: old or new, never neither", lambda space: len(_calls(space)), kill_at_call
    ),
    "refuse-every-call": Case(
        "ENOSPC and EIO from each writing system call: one line, the old intact",
        lambda space: len(_refusable(space)) * len(ERRORS),
        refuse_call,
    ),
    "flush-order": Case("files are flushed before they get their name", len(saver.OPERATIONS), flush_order),
    "full-disk": Case("a full disk ends a run in one line, and nothing is lost", 30, full_disk),
    "full-tensorboard": Case("no room for the curves: one warning, the same model", 8, full_tensorboard),
    "read-only": Case("a read-only folder is refused before the first step", 6, read_only),
}
