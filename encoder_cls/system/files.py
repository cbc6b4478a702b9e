"""Durable files: atomic writes, whole reads, leftovers of killed processes, locks.

A rename within a folder is atomic: after a power cut a reader finds the old content or the new one, never a part.
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

TEMPORARY_PREFIX = ".tmp-"
REPLACED_SUFFIX = ".old"
OLD = 3600.0  # seconds after which a temporary file counts as abandoned
# The folders that hold the streams of this process.
STREAMS = (
    Path("/dev/fd"),
    Path("/proc/self/fd"),
    Path("/proc/thread-self/fd"),
)
MOST_BYTES = 1 << 28  # of a file of unknown size that is read whole: texts of some million tokens
MOST_LINKS = 40  # to one file; the system itself follows no more
Content = bytes | Iterable[bytes | memoryview]  # of a file, whole or in parts


def sha256(content: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def to_json(value: Mapping[str, Any]) -> bytes:
    """A mapping as readable JSON text; NaN and infinity are refused (`ValueError`)."""
    return (json_text(value, indent=2) + "\n").encode()


def read_file(path: Path, *, most_bytes: int | None = None) -> bytes:
    """The content of a file; `EncoderClsError` as by `plain_file`, or if it is larger (None: than `MOST_BYTES`)."""
    most_bytes = MOST_BYTES if most_bytes is None else most_bytes
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
    """Open a file, and get its size; `EncoderClsError` if it cannot be read, or is a pipe, which may not end."""
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
    """Open a new file that replaces one durably and atomically when the block ends; its mode stays.

    If the block raises an error, or the disk refuses (`EncoderClsError`), the file keeps its old
    content, and nothing temporary stays. Leftovers of killed processes for the same file are
    removed.
    """
    with _temporary(path, _remove_unfinished(path)) as temporary:
        mode = stat.S_IMODE(path.stat().st_mode) & 0o777 if path.is_file() else None
        with _flushed_file(temporary, mode=mode) as file:
            yield file
        temporary.replace(path)


def write_folder(folder: Path, files: Mapping[str, Content]) -> None:
    """Create a folder with these files durably and all at once.

    An old folder of that name is moved to `NAME.old` and removed only when the new one is in place, so that a crash
    at any moment leaves a complete folder under one of the two names. If the disk refuses (`EncoderClsError`), nothing
    temporary stays.
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
    """A new name beside a path, to be renamed to it in the block; after a failure nothing of it stays.

    It is random, so that no other program can plant a file there. It leaves out the path's own name, which may have the
    maximum length, and whose ending would make readers of this folder read it, too.
    """
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{mark}{secrets.token_hex(8)}")
    with reporting_os_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            flush_folder(path.parent)
        except FileExistsError:  # it is somebody else's
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


def _remove_unfinished(path: Path) -> str:
    """Remove what killed processes of this machine, or any long ago, left of a file; returns the mark of both.

    A process that still writes holds a lock, which other machines may not see.
    """
    of_file = f"{sha256(os.fsencode(path.name))[:12]}-"
    mark = f"{of_file}{sha256(platform.node().encode())[:12]}-"
    with suppress(OSError):
        for left in list(path.parent.glob(f"{TEMPORARY_PREFIX}{of_file}*")):
            is_own = left.name.startswith(f"{TEMPORARY_PREFIX}{mark}") and not _is_being_written(
                left
            )
            if is_own or time.time() - left.stat().st_mtime > OLD:
                left.unlink(missing_ok=True)
    return mark


def _is_being_written(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            _lock(file)
            return False
    except OSError:  # or this file system has no locks
        return True


def _lock(file: BinaryIO) -> None:
    """Lock an open file; `OSError` if another process holds it. Not on Windows, which removes no open file."""
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed writers, and folders that they had replaced already."""
    replaced = [
        path for path in folder.glob(f"*{REPLACED_SUFFIX}") if path.with_suffix("").exists()
    ]
    for leftover in [*folder.glob(f"{TEMPORARY_PREFIX}*"), *replaced]:
        _remove(leftover)


def flush_folder(folder: Path) -> None:
    """Make the folder's list of names (creations, renames, removals) durable, where the system lets a program do so."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _flushed_file(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """Create a file, not through a link, whose content is durable when the block ends.

    Without a mode it gets what the umask leaves.
    """
    with path.open("xb") as file:
        with suppress(OSError):  # some file systems have no modes, and some no locks
            if mode is not None:  # before others could read any content
                path.chmod(mode)
            _lock(file)
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write(file: BinaryIO, content: Content) -> None:
    file.writelines([content] if isinstance(content, bytes) else content)


def write_output(path: Path, content: Content) -> None:
    """Write an output of a user, as `output_file` opens it."""
    with output_file(path) as file:
        _write(file, content)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Open an output of a user: a file to replace, through links to it, a pipe, a device or a stream.

    A file is replaced when the block ends, as by `replacing_file`. An open stream of this process,
    such as `/dev/stdout`, is written to at its current position.
    """
    descriptor = stream_named(path)
    if descriptor is None and path.is_dir():
        raise EncoderClsError(f"{path}: is a folder; name a file in it")

    if descriptor is None and (not path.exists() or path.is_file()):
        target = path_of(path)
        if target.is_symlink():
            raise EncoderClsError(f"{path}: cannot write: its links lead in a circle")
        with replacing_file(target) as file:
            yield file
        return

    with reporting_os_errors(path):
        opened = path if descriptor is None else os.dup(descriptor)
        with open(opened, "wb") as file:  # noqa: PTH123
            yield file


def path_of(path: Path) -> Path:
    """The absolute path without links; a link that leads in a circle stays."""
    return Path(os.path.realpath(path))  # Path.resolve raises a RuntimeError there


def stream_named(path: Path) -> int | None:
    """The number of the open stream that a path names, such as 1 for `/dev/stdout`, if any.

    The last link is not followed: it leads to the file behind the stream, which would then be replaced.
    """
    streams = {path_of(folder) for folder in STREAMS}
    for _ in range(MOST_LINKS):
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
    if "\0" in source:  # which no name has, and which the system refuses
        return iter(())
    folder = next((parent for parent in Path(source).parents if parent.is_dir()), Path())
    pattern = Path(glob.escape(str(folder)), Path(source).relative_to(folder))
    return glob.iglob(str(pattern), recursive=True)  # noqa: PTH207 - absolute, too


class LockedError(EncoderClsError):
    """Another process holds a lock."""


@contextmanager
def locked(path: Path, *, wait: bool = True, doing: str = "working") -> Iterator[None]:
    """Hold a lock file, which stays; the system releases the lock however this process ends.

    Where `wait` is False, a `LockedError` names the process that holds it and what it is `doing`; `EncoderClsError` if
    the disk refuses.
    """
    from filelock import FileLock, Timeout  # not needed to predict

    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    with reporting_os_errors(path):
        try:
            lock.acquire()
        except Timeout:
            holder = ""
            with suppress(OSError, ValueError):  # Windows locks the file for readers, too
                holder = path.read_text(encoding="utf-8").strip()
            raise LockedError(
                f"{path.parent}: {holder or 'another process'} is {doing} here"
            ) from None
        with suppress(OSError):
            path.write_text(f"process {os.getpid()}", encoding="utf-8")
    try:
        yield
    finally:
        lock.release()
