"""Locks between processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from encoder_cls.errors import EncoderClsError
from encoder_cls.system.files import reporting_os_errors


class LockedError(EncoderClsError):
    """Another process holds a lock."""


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file, which stays; the system releases the lock however this process ends.

    Args:
        path: the file; its folder exists.
        wait: for another process to release the lock.

    Raises:
        LockedError: another process, named in the message, holds the lock.
        EncoderClsError: the disk refuses.
    """
    from filelock import FileLock, Timeout  # not needed to predict

    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    with reporting_os_errors(path):
        try:
            lock.acquire()
        except Timeout:
            holder = ""
            with suppress(OSError):  # Windows locks the file for readers, too
                holder = path.read_text(encoding="utf-8").strip()
            raise LockedError(holder or "another process") from None
        with suppress(OSError):
            path.write_text(f"process {os.getpid()}", encoding="utf-8")
    try:
        yield
    finally:
        lock.release()
