"""Turn the errors of libraries that read binary formats into errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from encoder_cls.errors import DataError
from encoder_cls.system.display import printable, shortened

# The largest number of characters of a library's message that is shown.
LONGEST_REASON = 200


@contextmanager
def content_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn any error of a library about a file into a DataError; `kind` names the format."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except Exception as error:  # the libraries raise errors of many types on unexpected content
        if isinstance(error, OSError) and error.errno:
            # An error with a number comes from the system and is not about the content.
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        shown_reason = printable(shortened(reason, limit=LONGEST_REASON))
        raise DataError(path, f"not a readable {kind} file: {shown_reason}") from None
