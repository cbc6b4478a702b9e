"""Durable files: the old content or the new, never a part, and nothing left behind."""

from __future__ import annotations

import errno
import os
import platform
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from encoder_cls.errors import EncoderClsError
from encoder_cls.system import files as storage
from encoder_cls.system.files import LockedError, locked, write_output


def contents(folder: Path) -> dict[str, bytes]:
    """The content of each file in a folder, by its path in the folder."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_failing_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch, call):
    path = tmp_path / "file.json"
    storage.write_file(path, b"old")

    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = os if call == "fsync" else Path
    monkeypatch.setattr(owner, call, refuse)
    with pytest.raises(EncoderClsError, match=r"file\.json: cannot write: No space left"):
        storage.write_file(path, b"new")

    monkeypatch.undo()
    assert contents(tmp_path) == {"file.json": b"old"}


# The flushes of a folder with two files: each file, the folder, and the folder around it.
FLUSHES_OF_FOLDER = 4


@pytest.mark.parametrize("failing_flush", range(1, FLUSHES_OF_FOLDER + 2))
def test_a_failing_folder_write_leaves_a_whole_folder(tmp_path, monkeypatch, failing_flush):
    """Whichever flush fails, the old or the new folder is complete under one of its two names."""
    folder = tmp_path / "step-1"
    old = {"a": b"1", "b": b"2"}
    new = {"a": b"3", "b": b"4"}
    storage.write_folder(folder, old)

    flushed = []
    real_fsync = os.fsync

    def fsync(descriptor):
        flushed.append(descriptor)
        if len(flushed) == failing_flush:
            raise OSError(errno.EIO, "Input/output error")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if failing_flush <= FLUSHES_OF_FOLDER:
        with pytest.raises(EncoderClsError, match="step-1: cannot write: Input/output error"):
            storage.write_folder(folder, new)
    else:
        storage.write_folder(folder, new)

    names = [folder, folder.with_name("step-1.old")]
    found = [contents(path) for path in names if path.exists()]
    assert found
    assert all(content in (old, new) for content in found)
    assert not list(tmp_path.glob(f"{storage.TEMPORARY_PREFIX}*"))


def test_files_are_flushed_before_they_get_their_name(tmp_path, monkeypatch):
    events = []
    real_fsync = os.fsync
    real_replace = Path.replace

    def fsync(descriptor):
        events.append("fsync")
        real_fsync(descriptor)

    def replace(path, target):
        events.append("rename")
        return real_replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    storage.write_file(tmp_path / "x", b"content")

    assert events == ["fsync", "rename", "fsync"]


def test_a_file_can_be_written_in_parts(tmp_path):
    """If a part cannot be made, the old file stays, and nothing else. Any name works."""
    longest_name = "n" * 255
    path = tmp_path / longest_name

    storage.write_file(path, iter([b"a", b"", b"bc"]))
    assert contents(tmp_path) == {longest_name: b"abc"}

    def failing_parts():
        yield b"1"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        storage.write_file(path, failing_parts())
    assert contents(tmp_path) == {longest_name: b"abc"}


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path, monkeypatch):
    """A program that guesses the name cannot have another file overwritten."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")

    # Both names that a temporary file could have: of a folder, and of a file.
    file_hash = storage.sha256(b"file")[:12]
    machine_hash = storage.sha256(platform.node().encode())[:12]
    planted_for_folder = tmp_path / f"{storage.TEMPORARY_PREFIX}known"
    planted_for_file = tmp_path / f"{storage.TEMPORARY_PREFIX}{file_hash}-{machine_hash}-known"
    planted_for_folder.symlink_to(victim)
    planted_for_file.symlink_to(victim)
    monkeypatch.setattr(storage.secrets, "token_hex", lambda _: "known")

    storage.write_file(tmp_path / "file", b"new")
    with pytest.raises(EncoderClsError, match="folder: cannot write: File exists"):
        storage.write_folder(tmp_path / "folder", {"a": b"new"})

    assert victim.read_bytes() == b"precious"
    assert planted_for_folder.is_symlink()


@pytest.mark.parametrize(
    ("former", "umask", "mode"),
    [(0o600, 0o022, 0o600), (0o664, 0o077, 0o664), (None, 0o027, 0o640)],
)
def test_a_replaced_file_keeps_its_mode_and_a_new_one_has_the_umasks(tmp_path, former, umask, mode):
    """While it is written, too, nobody can read a file who could not read it before."""
    path = tmp_path / "file"
    if former is not None:
        path.touch()
        path.chmod(former)

    modes_while_writing = set()

    def parts():
        for file in tmp_path.iterdir():
            modes_while_writing.add(mode_of(file))
        yield b"content"

    before = os.umask(umask)
    try:
        storage.write_file(path, parts())
    finally:
        os.umask(before)

    assert mode_of(path) == mode
    assert modes_while_writing == {mode}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("flags", [os.O_APPEND, 0], ids=["appending", "in the midst"])
@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "link"])
def test_output_into_an_open_stream_comes_after_what_is_there(tmp_path, flags, name):
    """The stream of a shell's `>` or `>>` stays usable for its next command."""
    log = tmp_path / "log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | flags)
    (tmp_path / "link").symlink_to(f"/dev/fd/{descriptor}")

    try:
        os.write(descriptor, b"before ")
        write_output(tmp_path / name.format(descriptor), b"output")
        os.write(descriptor, b" after")
    finally:
        os.close(descriptor)

    assert log.read_bytes() == b"before output after"


def test_output_into_a_stream_that_is_closed_is_refused():
    reader, writer = os.pipe()
    os.close(writer)
    os.close(reader)

    with pytest.raises(EncoderClsError, match=r"/dev/fd/\d+: cannot write: Bad file descriptor"):
        write_output(Path(f"/dev/fd/{writer}"), b"content")


def test_output_goes_through_links(tmp_path):
    target = tmp_path / "folder" / "target"
    target.parent.mkdir()
    target.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(target)

    write_output(link, b"new")

    assert link.is_symlink()
    assert target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_output_goes_into_pipes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_output(pipe, [b"one ", b"two"])

    assert os.read(reader, 99) == b"one two"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_output_goes_into_devices(tmp_path):
    device = tmp_path / "null"
    device.symlink_to(os.devnull)

    write_output(device, b"nowhere")

    assert stat.S_ISCHR(device.stat().st_mode)


def test_folders_and_circles_of_links_are_no_output(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    for folder in (tmp_path, Path()):
        with pytest.raises(EncoderClsError, match="is a folder"):
            write_output(folder, b"content")
    with pytest.raises(EncoderClsError, match="cannot write"):
        write_output(tmp_path / "a", b"content")


def test_only_plain_files_of_sensible_size_are_read(tmp_path, monkeypatch):
    """A pipe may never end; a huge file would fill the memory."""
    monkeypatch.setattr(storage, "MAX_BYTES", 7)
    plain = tmp_path / "plain"
    plain.write_bytes(b"content")
    huge = tmp_path / "huge"
    huge.write_bytes(b"content!")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert storage.read_file(plain) == b"content"

    reasons = {
        huge: "8 bytes; the limit is 7",
        pipe: "not a plain file",
        tmp_path: "not a plain file",
        tmp_path / "missing": "cannot be read: No such file",
    }
    for path, reason in reasons.items():
        with pytest.raises(EncoderClsError, match=f"{path}: {reason}"):
            storage.read_file(path)


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000], ids=["empty", "cut off", "deep"])
def test_a_file_that_is_no_json_is_a_value_error(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"."):
        storage.read_json(path)


HOLD = """
import sys
from pathlib import Path
from encoder_cls.system.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_has_one_holder_until_its_process_ends(tmp_path):
    """Without waiting, another process is refused, with the holder's number."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {holder.pid}"), locked(path, wait=False):
            pass

        # The lock of a killed process is free.
        holder.kill()
        with locked(path):
            assert path.read_text() == f"process {os.getpid()}"

    with locked(path, wait=False):
        pass
