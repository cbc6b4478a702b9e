"""Durable files: atomic writes, verified reads, leftovers of killed processes.

A rename within one folder is atomic on POSIX file systems: a reader, or the next start after a power
cut, finds the old content or the new one and never a part of either.
"""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.display import json_text

TEMPORARY_PREFIX = ".tmp-"
FORMER_SUFFIX = ".old"
STREAMS = (Path("/dev/fd"), Path("/proc/self/fd"), Path("/proc/thread-self/fd"))  # folders of this process's streams
# Windows has none of the first two, and translates line ends without the third, which no other system has.
NO_LINK, NO_WAIT, BINARY = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
MOST_LINKS = 40  # that lead to one file; the system itself follows no more


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def to_json(value: Mapping[str, Any]) -> bytes:
    """A mapping as readable JSON text; NaN and infinity are refused (`ValueError`)."""
    return (json_text(value, indent=2) + "\n").encode()


@contextmanager
def opened_plainly(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file to read: no link, which could lead anywhere, and no pipe, which would wait for ever.

    Raises:
        EncoderClsError: it is something else, or unreadable.
    """
    try:
        if not (NO_LINK and NO_WAIT) and not stat.S_ISREG(path.lstat().st_mode):
            raise EncoderClsError(f"{path}: not a plain file")
        descriptor = os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT | BINARY)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor, not of a path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise EncoderClsError(f"{path}: not a plain file")
            yield file
    except OSError as error:
        reason = "not a plain file" if path.is_symlink() else f"cannot be read: {error.strerror or error}"
        raise EncoderClsError(f"{path}: {reason}") from None


def read_rest(file: BinaryIO, path: Path, *, most_bytes: int) -> bytes:
    """Read a file from its position to its end.

    Raises:
        EncoderClsError: the whole file is larger than `most_bytes`.
    """
    size = os.fstat(file.fileno()).st_size
    if size > most_bytes:
        raise EncoderClsError(f"{path}: {size:,} bytes, where {most_bytes:,} are the most there can be")
    return file.read()


def read_file(path: Path, *, most_bytes: int) -> bytes:
    """The content of a plain file.

    Raises:
        EncoderClsError: as `opened_plainly`; or the file is too large.
    """
    with opened_plainly(path) as file:
        return read_rest(file, path, most_bytes=most_bytes)


def flush_folder(folder: Path) -> None:
    """Make the folder's list of names (creations, renames, removals) durable, where the system lets a program do so."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes | Iterable[bytes], *, mark: str = "") -> None:
    """Replace a file's content, given whole or in parts, durably and atomically; who may read it stays the same.

    Args:
        path: of the file.
        content: of it.
        mark: what the temporary name begins with, after `TEMPORARY_PREFIX`: whose it is.

    Raises:
        EncoderClsError: the disk refused; the file keeps its former content, nothing temporary stays.
    """
    temporary = _temporary_path(path, mark)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_and_flush(temporary, content, mode=_mode_of(path))
        temporary.replace(path)
        flush_folder(path.parent)
    except BaseException as error:
        if not isinstance(error, FileExistsError):  # of somebody else's
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _refused(path, error) from error
        raise


def write_output(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write where a user has said: replace a file, through links to it, or write into a pipe or a device.

    What names an open stream of this process, such as `/dev/stdout`, is written to where that stream has come to:
    after what a file holds already.

    Raises:
        EncoderClsError: as `write_file`; or it is a folder.
    """
    descriptor = stream_named(path)
    if descriptor is not None:
        with reporting_os_errors(path), os.fdopen(os.dup(descriptor), "wb") as stream:
            stream.writelines(_parts(content))
        return
    if path.is_dir():
        raise EncoderClsError(f"{path}: is a folder; name a file in it")
    if not path.exists() or path.is_file():
        target = path_of(path)
        if target.is_symlink():
            raise EncoderClsError(f"{path}: cannot write: its links lead in a circle")
        write_file(target, content)
        return
    with reporting_os_errors(path), path.open("wb") as file:
        file.writelines(_parts(content))


def path_of(path: Path) -> Path:
    """The absolute path without links; of links that lead in a circle, what is left of them."""
    return Path(os.path.realpath(path))  # Path.resolve raises a RuntimeError there


def stream_named(path: Path) -> int | None:
    """The number of the open stream that a path names, such as 1 for `/dev/stdout`; none where it names something else.

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


def write_folder(folder: Path, files: Mapping[str, bytes | Iterable[bytes]]) -> None:
    """Create a folder with these files, whose content is given whole or in parts, durably and all at once.

    A folder that already has the name is moved to `NAME.old` and removed only when the new one is in
    place, so that a crash at any moment leaves a complete folder under one of the two names.

    Raises:
        EncoderClsError: the disk refused; nothing temporary stays.
    """
    temporary = _temporary_path(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name, content in files.items():
            _write_and_flush(temporary / name, content)
        flush_folder(temporary)
        former = folder.with_name(f"{folder.name}{FORMER_SUFFIX}")
        if folder.exists():
            shutil.rmtree(former, ignore_errors=True)
            folder.rename(former)
        temporary.rename(folder)
        flush_folder(folder.parent)
        shutil.rmtree(former, ignore_errors=True)
    except BaseException as error:
        if not isinstance(error, FileExistsError):  # of somebody else's
            shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise _refused(folder, error) from error
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed writer left under a temporary name, and what it had replaced already."""
    replaced = [path for path in folder.glob(f"*{FORMER_SUFFIX}") if path.with_suffix("").exists()]
    for leftover in [*folder.glob(f"{TEMPORARY_PREFIX}*"), *replaced]:
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


@contextmanager
def reporting_os_errors(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn an `OSError` inside the block into one error for the user that names the path."""
    try:
        yield
    except OSError as error:
        raise _refused(path, error, doing) from error


def _temporary_path(path: Path, mark: str = "") -> Path:
    """A new name in the same folder, which nobody can know beforehand and put something under.

    It has no part of the path's own name: that may be as long as a name can be, and its ending would tell whoever reads
    all files of a kind in this folder to read this one, too.
    """
    return path.with_name(f"{TEMPORARY_PREFIX}{mark}{secrets.token_hex(8)}")


def _mode_of(path: Path) -> int | None:
    """Who may do what with a file, as a number; none where there is no file."""
    return stat.S_IMODE(path.stat().st_mode) & 0o777 if path.is_file() else None


def _write_and_flush(path: Path, content: bytes | Iterable[bytes], *, mode: int | None = None) -> None:
    """Create a file that must not be there yet, not through a link either; no mode: what the umask leaves."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | BINARY
    # Until it has its mode, nobody else may read it.
    with os.fdopen(os.open(path, flags, 0o666 if mode is None else 0o600), "wb") as file:
        if mode is not None and hasattr(os, "fchmod"):
            with suppress(OSError):  # some file systems have no modes
                os.fchmod(file.fileno(), mode)
        file.writelines(_parts(content))
        file.flush()
        os.fsync(file.fileno())


def _parts(content: bytes | Iterable[bytes]) -> Iterable[bytes]:
    return [content] if isinstance(content, bytes) else content


def _refused(path: Path, error: OSError, doing: str = "write") -> EncoderClsError:
    return EncoderClsError(f"{path}: cannot {doing}: {error.strerror or error}")


def pattern_parts(source: str) -> tuple[Path, str]:
    """The folder that a pattern begins with and that exists, whatever is in its name, and the pattern below it."""
    folder = next((parent for parent in Path(source).parents if parent.is_dir()), Path())
    return folder, str(Path(source).relative_to(folder))


def fitting_paths(source: str) -> Iterator[str]:
    """The paths that fit a pattern; brackets in the names of folders that exist are no pattern."""
    folder, pattern = pattern_parts(source)
    return glob.iglob(str(Path(glob.escape(str(folder)), pattern)), recursive=True)  # noqa: PTH207 - absolute, too
