"""What several processes need that write files in one folder: a lock, hashes, and an end to what killed ones began."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from encoder_cls.errors import DataError
from encoder_cls.system.files import TEMPORARY_PREFIX, reporting_os_errors

OLD = 3600.0  # seconds after which what another machine has begun to write is nobody's any more
READ_BYTES = 1 << 20


class Hashed(Iterable[bytes]):
    """Parts of a content, whose hash is known when all have been passed on."""

    def __init__(self, content: Iterator[bytes]) -> None:
        self._content = content
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for part in self._content:
            self._hash.update(part)
            yield part

    def sha256(self) -> str:
        """Of what has been passed on."""
        return self._hash.hexdigest()


@contextmanager
def held(path: Path) -> Iterator[bool | None]:
    """Hold a lock: True where this process has it, False where another one has, None where there are no locks here."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield None
        return
    while True:
        with reporting_os_errors(path):
            lock = path.open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                yield False
                return
            except OSError:  # no locks on this file system
                yield None
                return
            if not _is_at(path, lock.fileno()):
                continue  # its former holder removed it in between
            try:
                yield True
            finally:
                with suppress(OSError):
                    path.unlink()
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def remove_begun(folders: Iterable[Path], mark: str, of_machine: str, *, is_alone: bool) -> None:
    """Remove what killed processes had begun to write.

    Args:
        folders: where.
        mark: what the temporary names begin with, see `write_file`.
        of_machine: what comes next in those of this machine.
        is_alone: whether this process holds the lock; then nobody on this machine is still writing it.
    """
    with suppress(OSError):
        for path in [path for folder in folders for path in folder.glob(f"{TEMPORARY_PREFIX}{mark}*")]:
            is_own = path.name.startswith(f"{TEMPORARY_PREFIX}{mark}{of_machine}")
            if (is_own and is_alone) or time.time() - path.stat().st_mtime > OLD:
                path.unlink()


def hash_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal.

    Raises:
        EncoderClsError: it cannot be read.
    """
    with reporting_os_errors(path, "read"), path.open("rb", buffering=0) as file:
        found = hashlib.sha256()
        while block := file.read(READ_BYTES):
            found.update(block)
        return found.hexdigest()


def state_of(path: Path) -> tuple[int, ...]:
    """What changes when a file does, as far as it can be told without reading it.

    Raises:
        DataError: there is no such file.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
