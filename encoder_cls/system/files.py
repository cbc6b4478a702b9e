"""Read and write files durably and atomically, remove what killed processes have left, and lock.

A file is replaced by a rename, which is atomic within a folder: even after a power cut, a reader
finds the old content or the new, never a part.
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

# The content of a file as one object or in several parts.
Content = bytes | Iterable[bytes | memoryview]

# The beginning of the names of temporary files and folders.
TEMPORARY_PREFIX = ".tmp-"
# The end of the name of a folder that is being replaced.
REPLACED_SUFFIX = ".old"
# The seconds since the last write after which a temporary file counts as abandoned.
SECONDS_UNTIL_ABANDONED = 3600.0
# The folders in which the system lists the open streams of this process.
STREAMS = (
    Path("/dev/fd"),
    Path("/proc/self/fd"),
    Path("/proc/thread-self/fd"),
)
# The maximum number of links to follow from one path. Linux has the same limit.
MAX_LINKS = 40
# The maximum size in bytes of a file that is read into memory at once.
MAX_BYTES = 1 << 28


def sha256(content: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def to_json(value: Mapping[str, Any]) -> bytes:
    """A mapping as indented JSON; a `ValueError` for NaN and infinite numbers."""
    return (json_text(value, indent=2) + "\n").encode()


def read_file(path: Path, *, most_bytes: int | None = None) -> bytes:
    """Read a whole file of at most `most_bytes`, by default `MAX_BYTES`.

    Raises:
        EncoderClsError: the file is larger, is not a plain file, or cannot be read.
    """
    if most_bytes is None:
        most_bytes = MAX_BYTES

    with plain_file(path) as (file, size):
        if size > most_bytes:
            raise EncoderClsError(f"{path}: {size:,} bytes; the limit is {most_bytes:,}")
        return file.read()


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        EncoderClsError: see `read_file`.
        ValueError: the file is not JSON.
    """
    content = read_file(path)
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError(f"{path}: JSON nested too deeply") from None


@contextmanager
def plain_file(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file for reading, and yield its size in bytes, too.

    Raises:
        EncoderClsError: the file cannot be read, or is a pipe or a device, which may never end.
    """
    with reporting_os_errors(path, "be read"):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise EncoderClsError(f"{path}: not a plain file")

        with path.open("rb") as file:
            yield file, status.st_size


def write_file(path: Path, content: Content) -> None:
    """Replace the content of a file as by `replacing_file`."""
    with replacing_file(path) as file:
        _write(file, content)


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces a file durably and atomically when the block ends.

    The new file gets the permissions of the old one. If the block raises an error, the old content
    stays, and temporary files go, also those that killed processes have left.

    Raises:
        EncoderClsError: the file cannot be written, and keeps its old content.
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
    """Create or replace a folder of files, by name, durably and atomically.

    An old folder is renamed to `NAME.old`, and removed once the new one is in place. After a crash,
    a complete folder exists under one of the names.

    Raises:
        EncoderClsError: a file cannot be written. No temporary file stays.
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
    """Yield a new path beside `path`; the block renames it when it is complete, or it is removed.

    Its name is random, so that no other program can put a file there before, and not that of
    `path`, which may have the maximum length, and whose ending would let readers of the folder read
    it, too.
    """
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{mark}{secrets.token_hex(8)}")
    with reporting_os_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            flush_folder(path.parent)
        except FileExistsError:
            # Another process has created this path, so do not remove it.
            raise
        except BaseException:
            with suppress(OSError):
                _remove(temporary)
            raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _mark_of_file(path: Path) -> str:
    name_hash = sha256(os.fsencode(path.name))[:12]
    return f"{name_hash}-"


def _mark_of_writer(path: Path) -> str:
    machine_hash = sha256(platform.node().encode())[:12]
    return f"{_mark_of_file(path)}{machine_hash}-"


def _remove_unfinished(path: Path) -> None:
    """Remove what killed processes have left for a path.

    Files of this machine go if no process holds their lock. Locks of other machines may not be
    visible, so their files go only when they are old.
    """
    with suppress(OSError):
        for temporary in list(path.parent.glob(f"{TEMPORARY_PREFIX}{_mark_of_file(path)}*")):
            if _is_abandoned(temporary, path):
                temporary.unlink(missing_ok=True)


def _is_abandoned(temporary: Path, path: Path) -> bool:
    is_of_this_machine = temporary.name.startswith(f"{TEMPORARY_PREFIX}{_mark_of_writer(path)}")
    if is_of_this_machine and not _is_being_written(temporary):
        return True

    seconds_since_write = time.time() - temporary.stat().st_mtime
    return seconds_since_write > SECONDS_UNTIL_ABANDONED


def _is_being_written(path: Path) -> bool:
    """Whether a process holds its lock, or this is unknown."""
    try:
        with path.open("rb") as file:
            _lock(file)
    except OSError:
        # Another process holds the lock, or this file system has no locks.
        return True
    return False


def _lock(file: BinaryIO) -> None:
    """Lock an open file, except on Windows, where it cannot be removed anyway.

    An `OSError` if another process holds the lock, or the file system has none.
    """
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes, and old folders that are replaced."""
    for temporary in list(folder.glob(f"{TEMPORARY_PREFIX}*")):
        _remove(temporary)

    for replaced in list(folder.glob(f"*{REPLACED_SUFFIX}")):
        if replaced.with_suffix("").exists():
            _remove(replaced)


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries, so that renames and new files survive a crash; not on Windows."""
    if not hasattr(os, "O_DIRECTORY"):
        return

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _flushed_file(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """Create a file with the permissions `mode`, and flush it when the block ends."""
    with path.open("xb") as file:
        # Ignore errors, because some file systems have no permissions, and some have no locks.
        with suppress(OSError):
            # Set the permissions before there is any content that others could read.
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
    """See `output_file`."""
    with output_file(path) as file:
        _write(file, content)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Open an output that a user has named: a file, a pipe, a device or an open stream.

    A file is replaced as by `replacing_file`, behind links, which stay. A stream of this process,
    such as `/dev/stdout`, is written to at its current position.

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
    """Absolute, with links resolved; a circular link stays unresolved."""
    # Do not call `Path.resolve`, because it would raise a `RuntimeError` for a circular link.
    return Path(os.path.realpath(path))


STANDARD_INPUT = "-"


def stream_named(path: Path) -> int | None:
    """The number of the open stream that a path names, such as 1 for `/dev/stdout`.

    Links are followed only up to `/proc/self/fd/1`, which is itself a link to the file behind the
    stream, which must be written to, not replaced.
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
    """Turn an `OSError` into an `EncoderClsError`, "PATH: cannot DOING: REASON"."""
    try:
        yield
    except OSError as error:
        raise EncoderClsError(f"{path}: cannot {doing}: {error.strerror or error}") from error


def fitting_paths(source: str) -> Iterator[str]:
    """The paths that match a pattern.

    Brackets, `*` and `?` are literal in the name of an existing folder.
    """
    # No name contains this character, and `glob` would raise an error.
    if "\0" in source:
        return iter(())

    folder, rest = _literal_folder(source)
    pattern = Path(glob.escape(str(folder)), rest)
    return glob.iglob(str(pattern), recursive=True)  # noqa: PTH207 - the pattern may be absolute


def fits_pattern(path: Path, source: str) -> bool:
    """Whether a path without links, maybe of no file, matches a pattern.

    In contrast to `fitting_paths`, `**` stands for one folder.
    """
    folder, rest = _literal_folder(source)
    return path.match(str(Path(glob.escape(str(path_of(folder))), rest)))


def _literal_folder(source: str) -> tuple[Path, Path]:
    """The innermost existing folder of a pattern, which is literal, and the rest."""
    existing_folders = (parent for parent in Path(source).parents if parent.is_dir())
    folder = next(existing_folders, Path())
    return folder, Path(source).relative_to(folder)


class LockedError(EncoderClsError):
    """Another process holds a lock."""


@contextmanager
def locked(path: Path, *, wait: bool = True, doing: str = "working") -> Iterator[None]:
    """Hold a lock during the block; the system releases it even if this process is killed.

    The lock file stays; the message of another process says what this one is `doing`.

    Raises:
        LockedError: another process holds it, and `wait` is False.
        EncoderClsError: the lock file is a link or cannot be written, or there are no locks.
    """
    # Import this library here, because most predictions do not need it.
    from filelock import FileLock, Timeout

    # Another user may have put a link there, and the file behind it would be written.
    if path.is_symlink():
        raise EncoderClsError(f"{path}: is a link where a lock file is expected; remove it")

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
    holder = ""
    # On Windows, a locked file cannot be read.
    with suppress(OSError, ValueError):
        holder = lock_file.read_text(encoding="utf-8").strip()
    return holder or "another process"
