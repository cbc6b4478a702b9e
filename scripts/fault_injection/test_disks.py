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
from typing import NamedTuple

import pytest
from processes import mount, small_disk, with_mounts
from samples import curves, engine_of, fingerprint, tries
from servers import wait_until
from tensorboard.summary.writer.event_file_writer import EventFileWriter

CALLS = "mkdir,openat,write,fsync,rename,unlink,unlinkat,rmdir,ftruncate"
# Removals that fail leave more, not less.
REFUSABLE = {"mkdir", "openat", "write", "fsync", "rename"}
ERRORS = {"EIO": "Input/output error", "ENOSPC": "No space left on device"}
# The calls that write in a folder of a run, or ("") into the run's folder itself.
NUM_CALLS = {"checkpoints": 37, "model": 32, "": 49}
NUM_REFUSABLE = {"checkpoints": 30, "model": 32, "": 49}


def every(counts):
    """A try for each call in each part."""
    calls = []
    for group, count in counts.items():
        for number in range(count):
            calls.append(pytest.param(group, number, id=f"{group or 'run'}-{number}"))
    return pytest.mark.parametrize(("group", "number"), calls)


@every(NUM_CALLS)
def test_kill_every_call(space, group, number):
    """SIGKILL at a system call of a training: the old files or the new ones are whole."""
    run = space.new_path("killed")
    calls, _ = disturb(space, run, traced(space), NUM_CALLS, group, number, "signal=KILL")
    if (run / "model" / "model.safetensors").exists():
        space.predict(run, engine_of(number), "some rain").check()

    renamed = [call.target for call in calls[:-1] if call.name == "rename"]
    if any("checkpoints/step-" in target for target in renamed):
        checkpoints = [*(run / "checkpoints").glob("step-*")]
        assert checkpoints, f"{calls[-1]}: there is no checkpoint any more"

    ended = space.finish(space.brief(), run)
    assert "passed over" not in ended.err, f"{calls[-1]}: {ended.err}"


@pytest.mark.parametrize("error", ERRORS)
@every(NUM_REFUSABLE)
def test_refuse_every_call(space, group, number, error):
    """ENOSPC or EIO from a system call: one line names the path, the old files stay."""
    run = space.new_path("refused")
    refusable = [call for call in traced(space) if call.name in REFUSABLE]
    calls, ended = disturb(space, run, refusable, NUM_REFUSABLE, group, number, f"error={error}")
    assert not list(run.rglob(".tmp-*")), f"{calls[-1]}: something temporary is left"
    if ended.code:
        ended.check_error(1, ERRORS[error])
        assert str(run) in ended.err, ended.err
    ended = space.finish(space.brief(), run)
    assert "passed over" not in ended.err, f"{calls[-1]}: {ended.err}"


@pytest.mark.parametrize(
    "name", ["checkpoints/step-", "model/model.safetensors", "metrics.jsonl", "config.yaml"]
)
def test_flush_order(space, name):
    """Every file is flushed between its last write and the rename, its folder after that."""
    calls = traced(space)
    all_written = {call.path for call in calls if call.name == "write"}
    flushed = set()
    unflushed_renames = set()
    num_renames = 0

    for call in calls:
        if call.name in {"write", "ftruncate"}:
            flushed.discard(call.path)
        elif call.name == "fsync":
            flushed.add(call.path)
            for target in list(unflushed_renames):
                if str(Path(target).parent) == call.path:
                    unflushed_renames.remove(target)
        elif call.name == "rename" and name in call.target:
            num_renames += 1
            # The file itself, or the files of a folder.
            written = {path for path in all_written if f"{path}/".startswith(f"{call.path}/")}
            assert flushed >= written, f"{call.target} gets its name before it is on disk"
            unflushed_renames.add(call.target)
        elif call.name == "unlinkat" and name in call.path:
            assert not unflushed_renames, "an old checkpoint goes before the new one is on disk"

    assert num_renames, "nothing is renamed"
    assert not unflushed_renames, f"{unflushed_renames}: the folder is not flushed"


@tries(30)
def test_full_disk(space, number):
    """A run on a disk of 20 to 1,000 kB succeeds, or fails in one line that names a path.

    With room it goes on exactly.
    """
    reference = space.reference("default")
    run = space.new_path("full")
    run.mkdir()

    def train():
        ended = space.fork(space.train("default", run)).end()
        assert not list(run.rglob(".tmp-*")), "something temporary is left"
        if ended.code:
            ended.check_error(1, str(run))
            mount("-o", "remount,size=8m", run)
            space.finish("default", run)
            return

        found = fingerprint(run)
        expected = fingerprint(reference)
        assert found["files"] == expected["files"]
        has_curves = "continues without TensorBoard" not in ended.err
        assert not has_curves or found["curves"] == expected["curves"]

    kilobytes = round(20 * 50 ** (number / 29))
    with_mounts([small_disk(run, kilobytes)], train)


@tries(8)
def test_full_tensorboard(space, draw, number):
    """No room for TensorBoard's files alone: one warning, and the run is the same otherwise."""
    reference = space.reference("default")
    run = space.new_path("no-curves")
    small = space.new_path("small-disk")
    small.mkdir()

    def write_there():
        # The event file is in the run's folder, among files that must have room.
        init = EventFileWriter.__init__

        def init_there(self, _folder, *arguments, **options):
            init(self, str(small), *arguments, **options)

        EventFileWriter.__init__ = init_there

    def train():
        ended = space.fork(space.train("default", run), prepare=write_there).end().check()
        found = fingerprint(run)
        expected = fingerprint(reference)
        assert found["files"] == expected["files"]
        assert found["metrics"] == expected["metrics"]

        num_warnings = ended.err.count("continues without TensorBoard")
        lacks_curves = curves(small) != expected["curves"]
        assert num_warnings == int(lacks_curves), ended.err

    # The first try has the least room.
    pages = draw.randint(1, 6) if number else 1
    with_mounts([small_disk(small, 4 * pages)], train)


@tries(6)
def test_read_only(space, number):
    """A folder that cannot be written to: train ends at once, eval and predict work."""
    finished = space.copy("labels")
    begun = space.copy("labels", is_begun=True)
    empty = space.new_path("empty")
    empty.mkdir()

    def use():
        target = [begun, empty, empty / "new"][number % 3]
        ended = space.fork(space.train("labels", target)).end()
        ended.check_error(1, "Read-only file system")
        assert "step " not in ended.err, ended.err
        space.predict(finished, engine_of(number, kinds=3), "some rain").check()
        ended = space.fork(["eval", finished]).end().check()
        assert b"accuracy" in ended.out
        assert "Read-only file system" in ended.err

    mounts = []
    for folder in (finished, begun, empty):
        mounts.append(("--bind", folder, folder))
        mounts.append(("-o", "remount,ro,bind", folder))
    with_mounts(mounts, use)


class Call(NamedTuple):
    """A system call: its name, the path in the run's folder, and a rename's new path."""

    name: str
    path: str
    target: str


@functools.cache
def traced(space):
    """The system calls of a training that write in its folder, in order."""
    run = space.new_path("traced")
    log = space.new_path("strace.log")
    strace(space, run, ["-ff", "-ttt", "-y", "-e", f"trace={CALLS}", "-o", log]).check()

    # Each thread has a log, whose lines begin with the time.
    logs = run.parent.glob(f"{log.name}.*")
    lines = "".join(path.read_text(errors="replace") for path in logs).splitlines()
    calls = [parse_call(line, run) for line in sorted(lines)]
    return [call for call in calls if call]


def parse_call(line, run):
    """The call of a line of strace; none if it does not write in the run's folder."""
    match = re.search(r"(\w+)\((.*)\) += \d", line)
    if not match:
        return None
    name, arguments = match.groups()
    if str(run) not in arguments or (name == "openat" and "O_CREAT" not in arguments):
        return None

    found = re.findall(rf"{re.escape(str(run))}[^>\",]*", arguments)
    paths = [os.path.relpath(path, run) for path in found]
    if name == "unlinkat" and len(paths) == 1 and '"' in arguments:
        # The name is beside the path of its folder.
        paths[0] += "/" + arguments.split('"')[1]
    # TensorBoard writes in a thread, at any time, into files with other names each time; it has a
    # case of its own.
    if re.search("tfevents|^eval", paths[0]):
        return None
    return Call(name, paths[0], paths[-1])


def disturb(space, run, calls, counts, group, number, injection):
    """Inject something into a call of a training.

    Returns:
        The calls up to it, and how the training ended.
    """
    places = [place for place, call in enumerate(calls) if is_in(call, group)]
    # Each call needs a try. A fault may change how many calls there are.
    if "FAULT" not in os.environ:
        assert len(places) <= counts[group], f"{group or 'run'}: {len(places)} calls now"

    calls = calls[: places[number % len(places)] + 1]
    watched = [(call.name, watched_path(call)) for call in calls]
    name, path = watched[-1]
    when = watched.count(watched[-1])
    inject = ["-e", f"trace={name}", "-e", f"inject={name}:{injection}:when={when}"]
    return calls, strace(space, run, ["-f", "-P", run / path, *inject, "-o", "/dev/null"])


def is_in(call, group):
    """Whether a call is in a folder of the run or, for "", in the run's folder itself."""
    if group:
        return call.path.startswith(f"{group}/")
    return "/" not in call.path


def watched_path(call):
    """The path by which strace matches a call: the folder, where it takes that and a name."""
    if call.name == "unlinkat":
        return str(Path(call.path).parent)
    return call.path


def strace(space, run, options):
    """Train under strace, which is attached to a fork that waits for it; returns how it ended."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")

    def wait_for_tracer():
        names = itertools.count()
        secrets.token_hex = lambda _=None: f"{next(names):016x}"  # the same in every training
        os.kill(os.getpid(), signal.SIGSTOP)

    process = space.fork(space.train(space.brief(), run), prepare=wait_for_tracer)
    status = Path(f"/proc/{process.pid}/status")
    wait_until(lambda: "(stopped)" in status.read_text(), "it waits")
    tracer = ["strace", "-p", str(process.pid), *options]
    with subprocess.Popen(tracer, stderr=subprocess.PIPE):
        wait_until(lambda: "TracerPid:\t0\n" not in status.read_text(), "strace attaches")
        process.signal(signal.SIGCONT)
        return process.end()
