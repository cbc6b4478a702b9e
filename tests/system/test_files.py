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
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_failing_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch, call):
    path = tmp_path / "file.json"
    storage.write_file(path, b"old")

    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os if call == "fsync" else Path, call, refuse)
    with pytest.raises(EncoderClsError, match=r"file\.json: cannot write: No space left"):
        storage.write_file(path, b"new")
    monkeypatch.undo()
    assert contents(tmp_path) == {"file.json": b"old"}


@pytest.mark.parametrize("failing_fsync", range(1, 6))
def test_a_failing_folder_write_leaves_a_whole_folder(tmp_path, monkeypatch, failing_fsync):
    """At each flush that fails, the old or the new folder is complete under one of its two names."""
    folder = tmp_path / "step-1"
    old, new = {"a": b"1", "b": b"2"}, {"a": b"3", "b": b"4"}
    storage.write_folder(folder, old)
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == failing_fsync:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if failing_fsync <= 4:  # two files, their folder, the parent
        with pytest.raises(EncoderClsError, match="step-1: cannot write: Input/output error"):
            storage.write_folder(folder, new)
    else:
        storage.write_folder(folder, new)
    found = [contents(path) for path in (folder, folder.with_name("step-1.old")) if path.exists()]
    assert found
    assert all(content in (old, new) for content in found)
    assert not list(tmp_path.glob(f"{storage.TEMPORARY_PREFIX}*"))


def test_files_are_flushed_before_they_get_their_name(tmp_path, monkeypatch):
    events = []
    real_fsync, real_replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append("fsync"), real_fsync(fd)))
    monkeypatch.setattr(Path, "replace", lambda a, b: (events.append("rename"), real_replace(a, b)))
    storage.write_file(tmp_path / "x", b"content")
    assert events == ["fsync", "rename", "fsync"]


def test_a_file_can_be_written_in_parts(tmp_path):
    """Where making a part fails, the old file stays, and nothing else; a name may be as long as a name can be."""
    path = tmp_path / ("n" * 255)
    storage.write_file(path, (part for part in (b"a", b"", b"bc")))
    assert contents(tmp_path) == {path.name: b"abc"}
    with pytest.raises(ZeroDivisionError):
        storage.write_file(path, (b"%d" % (1 // divisor) for divisor in (1, 0)))
    assert contents(tmp_path) == {path.name: b"abc"}


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path, monkeypatch):
    """Whoever could guess the name makes nothing be written elsewhere."""
    victim, planted = tmp_path / "victim", tmp_path / f"{storage.TEMPORARY_PREFIX}known"
    marks = (storage.sha256(name.encode())[:12] for name in ("file", platform.node()))
    of_file = tmp_path / f"{storage.TEMPORARY_PREFIX}{'-'.join(marks)}-known"
    victim.write_bytes(b"precious")
    for link in (planted, of_file):
        link.symlink_to(victim)
    monkeypatch.setattr(storage.secrets, "token_hex", lambda _: "known")
    storage.write_file(tmp_path / "file", b"new")
    with pytest.raises(EncoderClsError, match="folder: cannot write: File exists"):
        storage.write_folder(tmp_path / "folder", {"a": b"new"})
    assert victim.read_bytes() == b"precious"
    assert planted.is_symlink()


@pytest.mark.parametrize(
    ("former", "umask", "mode"),
    [(0o600, 0o022, 0o600), (0o664, 0o077, 0o664), (None, 0o027, 0o640)],
)
def test_a_replaced_file_keeps_its_mode_and_a_new_one_has_the_umasks(tmp_path, former, umask, mode):
    """What only its owner could read stays so; at no moment can others read more."""
    path = tmp_path / "file"
    if former is not None:
        path.touch()
        path.chmod(former)
    found = []

    def parts():
        found.extend(other.stat().st_mode & 0o777 for other in tmp_path.iterdir())
        yield b"content"

    before = os.umask(umask)
    try:
        storage.write_file(path, parts())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode
    assert set(found) == {mode}


@pytest.mark.parametrize("flags", [os.O_APPEND, 0], ids=["appending", "in the midst"])
@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "link"])
def test_output_into_an_open_stream_comes_after_what_is_there(tmp_path, flags, name):
    """As with `>>` and `>` of a shell, whose next command goes on after it; the file is not replaced."""
    log = tmp_path / "log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | flags)
    try:
        (tmp_path / "link").symlink_to(f"/dev/fd/{descriptor}")
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
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    write_output(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_output_goes_into_pipes_and_devices(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(pipe, [b"one ", b"two"])
    assert os.read(reader, 99) == b"one two"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    device = tmp_path / "null"
    device.symlink_to(os.devnull)
    write_output(device, b"nowhere")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_folders_and_circles_of_links_are_no_output(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for path, message in (
        (tmp_path, "is a folder"),
        (Path(), "is a folder"),
        (tmp_path / "a", "cannot write"),
    ):
        with pytest.raises(EncoderClsError, match=message):
            write_output(path, b"content")


def test_only_plain_files_of_sensible_size_are_read(tmp_path, monkeypatch):
    """A pipe would be waited for without an end; a huge file would fill the memory."""
    plain, huge, pipe = (tmp_path / name for name in ("plain", "huge", "pipe"))
    plain.write_bytes(b"content")
    huge.write_bytes(b"content!")
    os.mkfifo(pipe)
    monkeypatch.setattr(storage, "MOST_BYTES", 7)
    assert storage.read_file(plain) == b"content"
    for path, reason in (
        (huge, "8 bytes; the limit is 7"),
        (pipe, "not a plain file"),
        (tmp_path, "not a plain file"),
        (tmp_path / "missing", "cannot be read: No such file"),
    ):
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
    """Whoever does not wait is refused, with the holder's number; one who was killed holds nothing."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {holder.pid}"), locked(path, wait=False):
            pass
        holder.kill()
        with locked(path):
            assert path.read_text() == f"process {os.getpid()}"
    with locked(path, wait=False):
        pass
