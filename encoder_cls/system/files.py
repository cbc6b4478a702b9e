"""Durable files: atomic writes, whole reads, leftovers of killed processes, locks.

A rename within a folder is atomic: after a power cut a reader finds the old content or the new one,
never a part.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import platform
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.json_values import json_text

# The content of a file, whole or in parts.
Content = bytes | Iterable[bytes | memoryview]

# How the names of temporary files and folders begin.
TEMPORARY_PREFIX = ".tmp-"
# How the name of a folder ends that is being replaced.
REPLACED_SUFFIX = ".old"
# Seconds after which a temporary file counts as abandoned.
OLD = 3600.0
# The folders that hold the streams of this process.
STREAMS = (
    Path("/dev/fd"),
    Path("/proc/self/fd"),
    Path("/proc/thread-self/fd"),
)
# Links to one file, one after the other; the system itself follows no more.
MAX_LINKS = 40
# Bytes of a file that is read whole: texts of some million tokens.
MAX_BYTES = 1 << 28


def sha256(content: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def to_json(value: Mapping[str, Any]) -> bytes:
    """A mapping as readable JSON text; NaN and infinity are refused (`ValueError`)."""
    return (json_text(value, indent=2) + "\n").encode()


def read_file(path: Path, *, most_bytes: int | None = None) -> bytes:
    """The content of a file of at most so many bytes, `MAX_BYTES` by default.

    Raises:
        EncoderClsError: it is larger, or cannot be opened as a `plain_file`.
    """
    if most_bytes is None:
        most_bytes = MAX_BYTES

    with plain_file(path) as (file, size):
        if size > most_bytes:
            raise EncoderClsError(f"{path}: {size:,} bytes; the limit is {most_bytes:,}")
        return file.read()


def read_json(path: Path) -> Any:
    """Read the value in a JSON file.

    Raises:
        EncoderClsError: the file cannot be read, as by `read_file`.
        ValueError: it is not JSON.
    """
    content = read_file(path)
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError(f"{path}: JSON nested too deeply") from None


@contextmanager
def plain_file(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file, and get its size in bytes.

    Raises:
        EncoderClsError: it cannot be read; or it is a pipe, which may not end.
    """
    with reporting_os_errors(path, "be read"):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise EncoderClsError(f"{path}: not a plain file")

        with path.open("rb") as file:
            yield file, status.st_size


def write_file(path: Path, content: Content) -> None:
    """Replace a file's content as `replacing_file` does."""
    with replacing_file(path) as file:
        _write(file, content)


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces one durably and atomically when the block ends.

    It gets the mode of the old file. If the block raises an error, the file keeps its old content,
    and nothing temporary stays. What killed processes have left of the same file is removed.

    Raises:
        EncoderClsError: the disk refuses; the file keeps its old content then, too.
    """
    mark = _mark_of_writer(path)
    _remove_unfinished(path)

    with _temporary(path, mark) as temporary:
        mode = None
        if path.is_file():
            mode = stat.S_IMODE(path.stat().st_mode) & 0o777

        with _flushed_file(temporary, mode=mode) as file:
            yield file
        temporary.replace(path)


def write_folder(folder: Path, files: Mapping[str, Content]) -> None:
    """Create a folder with these files durably and all at once.

    An old folder of that name is moved to `NAME.old`, and removed only when the new one is in
    place, so that a crash at any moment leaves a complete folder under one of the two names.

    Raises:
        EncoderClsError: the disk refuses; nothing temporary stays.
    """
    old = folder.with_name(f"{folder.name}{REPLACED_SUFFIX}")

    with _temporary(folder) as temporary:
        temporary.mkdir()
        for name, content in files.items():
            with _flushed_file(temporary / name) as file:
                _write(file, content)
        flush_folder(temporary)

        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        temporary.rename(folder)

    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _temporary(path: Path, mark: str = "") -> Iterator[Path]:
    """A new path beside another one, which the block renames to that one.

    If the block raises an error, nothing stays at the new path.

    Its name is random, so that no other program can plant a file there. It does not contain the
    name of the other path, which may have the maximum length, and whose ending would make readers
    of this folder read the temporary file, too.
    """
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{mark}{secrets.token_hex(8)}")
    with reporting_os_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            flush_folder(path.parent)
        except FileExistsError:
            # Another process has created it: leave that one.
            raise
        except BaseException:
            with suppress(OSError):
                _remove(temporary)
            raise


def _remove(path: Path) -> None:
    """Remove a file or a folder; it may be missing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _mark_of_file(path: Path) -> str:
    """The part of temporary names that says which file they are for."""
    name_hash = sha256(os.fsencode(path.name))[:12]
    return f"{name_hash}-"


def _mark_of_writer(path: Path) -> str:
    """The part of temporary names that says which file they are for, and which machine writes."""
    machine_hash = sha256(platform.node().encode())[:12]
    return f"{_mark_of_file(path)}{machine_hash}-"


def _remove_unfinished(path: Path) -> None:
    """Remove temporary files for a path that killed processes have left.

    Those of this machine are removed if no process is still writing them: it would hold a lock.
    Other machines' locks may not be visible here, so their files are removed only when old.
    """
    with suppress(OSError):
        for temporary in list(path.parent.glob(f"{TEMPORARY_PREFIX}{_mark_of_file(path)}*")):
            if _is_abandoned(temporary, path):
                temporary.unlink(missing_ok=True)


def _is_abandoned(temporary: Path, path: Path) -> bool:
    """Whether no process will finish this temporary file for a path."""
    is_of_this_machine = temporary.name.startswith(f"{TEMPORARY_PREFIX}{_mark_of_writer(path)}")
    if is_of_this_machine and not _is_being_written(temporary):
        return True

    seconds_since_write = time.time() - temporary.stat().st_mtime
    return seconds_since_write > OLD


def _is_being_written(path: Path) -> bool:
    """Whether a process holds the lock of a temporary file, as far as can be seen."""
    try:
        with path.open("rb") as file:
            _lock(file)
    except OSError:
        # Another process holds it, or this file system has no locks.
        return True
    return False


def _lock(file: BinaryIO) -> None:
    """Lock an open file; `OSError` if another process holds the lock.

    It does nothing on Windows, which does not remove files that are open.
    """
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed writers, and folders that they had replaced already."""
    for temporary in list(folder.glob(f"{TEMPORARY_PREFIX}*")):
        _remove(temporary)

    for replaced in list(folder.glob(f"*{REPLACED_SUFFIX}")):
        if replaced.with_suffix("").exists():
            _remove(replaced)


def flush_folder(folder: Path) -> None:
    """Make creations, renames and removals in a folder durable.

    It does nothing on Windows, where folders cannot be opened.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _flushed_file(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """Create a file, not through a link, whose content is durable when the block ends.

    Without a mode, the file has the default one of this process (umask).
    """
    with path.open("xb") as file:
        # Some file systems have no modes, and some no locks.
        with suppress(OSError):
            # Set the mode before there is any content that others could read.
            if mode is not None:
                path.chmod(mode)
            _lock(file)

        yield file

        file.flush()
        os.fsync(file.fileno())


def _write(file: BinaryIO, content: Content) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        file.writelines(content)


def write_output(path: Path, content: Content) -> None:
    """Write an output of a user, as `output_file` opens it."""
    with output_file(path) as file:
        _write(file, content)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Open an output of a user: a file, a pipe, a device or a stream.

    A file is replaced when the block ends, as by `replacing_file`; of a link to a file, that file.
    An open stream of this process, such as `/dev/stdout`, is written to at its current position.

    Raises:
        EncoderClsError: the output is a folder, or cannot be written.
    """
    descriptor = stream_named(path)
    if descriptor is not None:
        with reporting_os_errors(path), open(os.dup(descriptor), "wb") as file:  # noqa: PTH123
            yield file
        return

    if path.is_dir():
        raise EncoderClsError(f"{path}: is a folder; name a file in it")

    is_pipe_or_device = path.exists() and not path.is_file()
    if is_pipe_or_device:
        with reporting_os_errors(path), path.open("wb") as file:
            yield file
        return

    target = path_of(path)
    if target.is_symlink():
        raise EncoderClsError(f"{path}: cannot write: its links lead in a circle")
    with replacing_file(target) as file:
        yield file


def path_of(path: Path) -> Path:
    """The absolute path without links; a link that leads in a circle stays."""
    # Path.resolve would raise a RuntimeError for a circle.
    return Path(os.path.realpath(path))


def stream_named(path: Path) -> int | None:
    """The number of the open stream that a path names, such as 1 for `/dev/stdout`, if any.

    The last link is not followed: it leads to the file behind the stream, which would then be
    replaced.
    """
    streams = {path_of(folder) for folder in STREAMS}
    for _ in range(MAX_LINKS):
        parent = path_of(path.parent)
        if parent in streams and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = parent / path.readlink()
    return None


@contextmanager
def reporting_os_errors(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn an `OSError` inside the block into one error for the user that names the path."""
    try:
        yield
    except OSError as error:
        raise EncoderClsError(f"{path}: cannot {doing}: {error.strerror or error}") from error


def fitting_paths(source: str) -> Iterator[str]:
    """The paths that match a pattern; brackets in the names of existing folders are literal."""
    # No name has this character, and the system refuses to look for it.
    if "\0" in source:
        return iter(())

    # The innermost folder that exists is taken as it is written.
    existing_folders = (parent for parent in Path(source).parents if parent.is_dir())
    folder = next(existing_folders, Path())

    pattern = Path(glob.escape(str(folder)), Path(source).relative_to(folder))
    return glob.iglob(str(pattern), recursive=True)  # noqa: PTH207 - the pattern may be absolute


class LockedError(EncoderClsError):
    """Another process holds a lock."""


@contextmanager
def locked(path: Path, *, wait: bool = True, doing: str = "working") -> Iterator[None]:
    """Hold a lock file, which stays; the system releases the lock however this process ends.

    Where `wait` is False, the lock must be free.

    Raises:
        LockedError: another process holds the lock; it names that one, and what it is `doing`.
        EncoderClsError: the disk refuses.
    """
    # Not imported to predict.
    from filelock import FileLock, Timeout

    timeout = -1 if wait else 0
    lock = FileLock(path, timeout=timeout, thread_local=False)
    with reporting_os_errors(path):
        try:
            lock.acquire()
        except Timeout:
            raise LockedError(f"{path.parent}: {_holder_of(path)} is {doing} here") from None
        with suppress(OSError):
            path.write_text(f"process {os.getpid()}", encoding="utf-8")

    try:
        yield
    finally:
        lock.release()


def _holder_of(lock_file: Path) -> str:
    """The process that holds a lock, by the content of its file."""
    holder = ""
    # Windows locks the file for readers, too.
    with suppress(OSError, ValueError):
        holder = lock_file.read_text(encoding="utf-8").strip()
    return holder or "another process"
