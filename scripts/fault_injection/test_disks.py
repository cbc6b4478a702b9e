"""Disks: every system call that writes is killed or refused; disks are full, or read-only."""

import functools
import itertools
import os
import re
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from processes import mount, small_disk, with_mounts
from samples import curves, engine_of, fingerprint, tries
from servers import wait_until
from tensorboard.summary.writer.event_file_writer import EventFileWriter

CALLS = "mkdir,openat,write,fsync,rename,unlink,unlinkat,rmdir,ftruncate"
# Removals that fail leave more, not less.
REFUSABLE = {
    "mkdir",
    "openat",
    "write",
    "fsync",
    "rename",
}
ERRORS = {"EIO": "Input/output error", "ENOSPC": "No space left on device"}
# That write there, or into the run's folder itself.
NUM_CALLS = {
    "checkpoints": 35,
    "model": 32,
    "": 44,
}
NUM_REFUSABLE = {"checkpoints": 30, "model": 32, "": 44}


def every(counts):
    """A try for each call in each part."""
    calls = [(group, number) for group, count in counts.items() for number in range(count)]
    return pytest.mark.parametrize(
        ("group", "number"), calls, ids=[f"{group or 'run'}-{it}" for group, it in calls]
    )


@every(NUM_CALLS)
def test_kill_every_call(space, group, number):
    """SIGKILL at a system call of a training: the old files or the new ones are whole."""
    run = space.new_path("killed")
    lines, _ = disturb(space, run, traced(space), NUM_CALLS, group, number, "signal=KILL")
    if (run / "model" / "model.safetensors").exists():
        space.predict(run, engine_of(number), "some rain").check()
    has_saved = any(
        name == "rename" and "checkpoints/step-" in target for name, _, target in lines[:-1]
    )
    assert not has_saved or [*(run / "checkpoints").glob("step-*")], (
        f"{lines[-1]}: there is no checkpoint any more"
    )
    ended = space.finish(space.brief(), run)
    assert "passed over" not in ended.err, f"{lines[-1]}: {ended.err}"


@pytest.mark.parametrize("error", ERRORS)
@every(NUM_REFUSABLE)
def test_refuse_every_call(space, group, number, error):
    """ENOSPC or EIO from a system call: one line that names the path, the old version, nothing temporary."""
    run = space.new_path("refused")
    refusable = [line for line in traced(space) if line[0] in REFUSABLE]
    lines, ended = disturb(space, run, refusable, NUM_REFUSABLE, group, number, f"error={error}")
    assert not list(run.rglob(".tmp-*")), f"{lines[-1]}: something temporary is left"
    if ended.code:
        ended.check_error(1, ERRORS[error])
        assert str(run) in ended.err, ended.err
    ended = space.finish(space.brief(), run)
    assert "passed over" not in ended.err, f"{lines[-1]}: {ended.err}"


@pytest.mark.parametrize(
    "name", ["checkpoints/step-", "model/model.safetensors", "metrics.jsonl", "config.yaml"]
)
def test_flush_order(space, name):
    """Every file is flushed between its last write and the rename, and its folder after the rename."""
    flushed, unflushed_renames, renames = set(), set(), 0
    for call, path, target in traced(space):
        if call in {"write", "ftruncate"}:
            flushed.discard(path)
        elif call == "fsync":
            flushed.add(path)
            unflushed_renames = {
                renamed for renamed in unflushed_renames if str(Path(renamed).parent) != path
            }
        elif call == "rename" and name in target:
            renames += 1
            written = [
                it
                for one, it, _ in traced(space)
                if one == "write" and (it + "/").startswith(path + "/")
            ]
            assert flushed.issuperset(written), f"{target} gets its name before it is on disk"
            unflushed_renames.add(target)
        elif call == "unlinkat" and name in path:
            assert not unflushed_renames, (
                "an old checkpoint is removed before the new one's name is on disk"
            )
    assert renames, "nothing is renamed"
    assert not unflushed_renames, f"{unflushed_renames}: the folder is not flushed"


@tries(30)
def test_full_disk(space, number):
    """A run on a disk of 20 to 1,000 kB succeeds, or fails in one line that names a path; its files can be loaded."""
    reference, run = space.reference("default"), space.new_path("full")
    run.mkdir()

    def train():
        ended = space.fork(space.train("default", run)).end()
        assert not list(run.rglob(".tmp-*")), "something temporary is left"
        if ended.code == 0:
            one, other = fingerprint(run), fingerprint(reference)
            assert one["files"] == other["files"]
            assert "goes on without TensorBoard" in ended.err or one["curves"] == other["curves"]
        else:
            ended.check_error(1, str(run))
            mount("-o", "remount,size=8m", run)
            space.finish("default", run)

    with_mounts([small_disk(run, round(20 * 50 ** (number / 29)))], train)


@tries(8)
def test_full_tensorboard(space, draw, number):
    """No room for TensorBoard's files alone: one warning, and the run is the same otherwise."""
    reference, run, small = (
        space.reference("default"),
        space.new_path("no-curves"),
        space.new_path("small-disk"),
    )
    small.mkdir()

    def write_there():  # the event file is in the run's folder, among files that are to have room
        write = EventFileWriter.__init__
        EventFileWriter.__init__ = lambda self, _, *more, **options: write(
            self, str(small), *more, **options
        )

    def train():
        ended = space.fork(space.train("default", run), prepare=write_there).end().check()
        one, other = fingerprint(run), fingerprint(reference)
        assert one["files"] == other["files"]
        assert one["metrics"] == other["metrics"]
        assert ended.err.count("goes on without TensorBoard") == (
            curves(small) != other["curves"]
        ), ended.err

    with_mounts([small_disk(small, 4 * (draw.randint(1, 6) if number else 1))], train)


@tries(6)
def test_read_only(space, number):
    """A folder that cannot be written to: train ends before its first step, eval and predict work."""
    finished, begun, empty = (
        space.copy("labels"),
        space.copy("labels", is_begun=True),
        space.new_path("empty"),
    )
    empty.mkdir()

    def use():
        target = [begun, empty, empty / "new"][number % 3]
        ended = (
            space.fork(space.train("labels", target)).end().check_error(1, "Read-only file system")
        )
        assert "step " not in ended.err, ended.err
        space.predict(finished, engine_of(number, kinds=3), "some rain").check()
        ended = space.fork(["eval", finished]).end().check()
        assert b"accuracy" in ended.out
        assert "Read-only file system" in ended.err

    folders = (finished, begun, empty)
    read_only = (("-o", "remount,ro,bind", folder) for folder in folders)
    with_mounts([*(("--bind", folder, folder) for folder in folders), *read_only], use)


@functools.cache
def traced(space):
    """The system calls of a training that write, in order: name, path in its folder, and a rename's new path."""
    run, log = space.new_path("traced"), space.new_path("strace.log")
    strace(space, run, ["-ff", "-ttt", "-y", "-e", f"trace={CALLS}", "-o", log]).check()
    logs, found = run.parent.glob(f"{log.name}.*"), []  # one of each thread
    for line in sorted("".join(path.read_text(errors="replace") for path in logs).splitlines()):
        match = re.search(r"(\w+)\((.*)\) += \d", line)
        if (
            not match
            or str(run) not in match[2]
            or (match[1] == "openat" and "O_CREAT" not in match[2])
        ):
            continue
        paths = [
            os.path.relpath(path, run)
            for path in re.findall(rf"{re.escape(str(run))}[^>\",]*", match[2])
        ]
        if match[1] == "unlinkat" and len(paths) == 1 and '"' in match[2]:
            paths[0] += "/" + match[2].split('"')[1]
        # TensorBoard writes in a thread, at any time, into files with other names each time; it has a case of its own.
        if not re.search("tfevents|^eval", paths[0]):
            found.append((match[1], paths[0], paths[-1]))
    return found


def disturb(space, run, lines, counts, group, number, injection):
    """Inject something into a call of a training: the lines of the trace up to it, and how it ended."""

    def watched(line):  # calls that take a folder's descriptor and a name are matched by the folder
        return line[0], str(Path(line[1]).parent) if line[0] == "unlinkat" else line[1]

    places = [
        at
        for at, line in enumerate(lines)
        if line[1].startswith(f"{group}/") or ("/" in line[1]) < (not group)
    ]
    assert len(places) == counts[group] or "FAULT" in os.environ, (
        f"{group or 'run'}: {len(places)} calls now"
    )
    lines = lines[: places[number % len(places)] + 1]
    (name, path), when = watched(lines[-1]), [*map(watched, lines)].count(watched(lines[-1]))
    inject = ["-e", f"trace={name}", "-e", f"inject={name}:{injection}:when={when}"]
    return lines, strace(space, run, ["-f", "-P", run / path, *inject, "-o", "/dev/null"])


def strace(space, run, options):
    """Train under strace, which is attached to a fork that waits for it; how it ended."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")

    def wait_for_tracer():
        names = itertools.count()
        secrets.token_hex = lambda _=None: f"{next(names):016x}"  # the same in every training
        os.kill(os.getpid(), signal.SIGSTOP)

    process = space.fork(space.train(space.brief(), run), prepare=wait_for_tracer)
    status = Path(f"/proc/{process.pid}/status")
    wait_until(lambda: "(stopped)" in status.read_text(), "it waits")
    with subprocess.Popen(["strace", "-p", str(process.pid), *options], stderr=subprocess.PIPE):
        wait_until(lambda: "TracerPid:\t0\n" not in status.read_text(), "strace attaches")
        process.signal(signal.SIGCONT)
        return process.end()
