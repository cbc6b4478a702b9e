"""Errors of libraries that read files in binary formats, as errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from encoder_cls.errors import DataError
from encoder_cls.system.display import shown

# Characters of a library's reason.
LONGEST_REASON = 200


@contextmanager
def content_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a library raises about the content of a file into a DataError."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:  # the libraries raise many types on unexpected content
        if isinstance(error, OSError) and error.errno:
            # The disk refuses.
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        quoted = shown(reason, limit=LONGEST_REASON)
        raise DataError(path, f"not a readable {kind} file: {quoted[1:-1]}") from None
