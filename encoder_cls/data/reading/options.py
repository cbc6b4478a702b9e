"""Options for reading a source, and the notes made meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import (
    INVALID,
    LONGEST_LINE,
    SKIP,
    UTF8,
    is_utf8,
    seems_utf8,
    text_lines,
    undecodable,
)

# The locations that a warning lists.
SHOWN_ROWS = 3


@dataclass
class LeftOut:
    """Rows that are left out: their number, the first locations, and the reason of the first."""

    count: int = 0
    first: list[str] = field(default_factory=list)
    reason: str = ""

    def add(self, where: str, reason: str = "") -> None:
        """Count a row."""
        self.count += 1
        if not self.reason:
            self.reason = reason
        if len(self.first) < SHOWN_ROWS:
            self.first.append(where)

    def __str__(self) -> str:
        locations = ", ".join(self.first)
        if self.count > len(self.first):
            locations += ", …"
        return f"{self.count:,} ({locations})"


@dataclass
class Notes:
    """Notes on a source.

    Attributes:
        messages: for a person, each once.
        skipped: rows that cannot be read.
        empty: rows without a text.
        repeated_headers: headers between rows.
    """

    messages: list[str] = field(default_factory=list)
    skipped: LeftOut = field(default_factory=LeftOut)
    empty: LeftOut = field(default_factory=LeftOut)
    repeated_headers: LeftOut = field(default_factory=LeftOut)

    def warnings(self, source: str) -> Iterator[str]:
        """Warn of each kind of rows that were left out."""
        if self.skipped.count:
            yield (
                f"rows of {source} that cannot be read, which are left out: {self.skipped}; "
                f"the first: {self.skipped.reason}"
            )
        if self.empty.count:
            yield f"rows of {source} without a text, which are left out: {self.empty}"
        if self.repeated_headers.count:
            yield (
                f"rows of {source} that repeat the header, which are left out: "
                f"{self.repeated_headers}"
            )


def _ignore(message: str) -> None:
    """Receive a message that nobody waits for."""


@dataclass
class Reading:
    """Options for reading a source, and the notes made meanwhile.

    Attributes:
        delimiter: between the fields of a table; None: the usual one for its ending.
        encoding: of text files.
        is_sure: if not, a file that seems to be UTF-8 is read as UTF-8.
        bad_rows: `error`, or `skip` to leave out and count rows that cannot be read.
        notify: receives each message once.
        notes: made meanwhile.
    """

    delimiter: str | None = None
    encoding: str = UTF8
    is_sure: bool = True
    bad_rows: str = "error"
    notify: Callable[[str], None] = _ignore
    notes: Notes = field(default_factory=Notes)

    @property
    def skips(self) -> bool:
        """Whether rows that cannot be read are left out."""
        return self.bad_rows == "skip"

    def note(self, message: str) -> None:
        """Pass on a message about a file, once."""
        if message not in self.notes.messages:
            self.notes.messages.append(message)
            self.notify(message)

    def bad_row(self, error: DataError) -> None:
        """Leave out the row that an error names, or raise the error, as `bad_rows` asks for."""
        if not self.skips:
            raise error
        self.notes.skipped.add(error.where, error.what)

    def lines(self, path: Path, *, longest: int = LONGEST_LINE) -> Iterator[str]:
        """The lines of a text file.

        Where bad rows are skipped, invalid bytes are kept, so that `is_valid` finds them.
        A line of more bytes than the `longest` raises a `DataError`; -1 means no limit.
        """
        encoding = self.encoding
        if not is_utf8(encoding) and seems_utf8(path):
            if self.is_sure:
                self.note(
                    f"warning: {path}: is read as {encoding} (data.encoding), but seems to be "
                    "UTF-8; --set data.encoding=utf-8 reads it so"
                )
            else:
                self.note(
                    f"{path}: read as UTF-8, which it seems to be, not as {encoding} as in training"
                )
                encoding = UTF8
        yield from text_lines(path, encoding, keep_invalid=self.skips, longest=longest)

    def is_valid(self, path: Path, where: SourceLocation, text: str) -> bool:
        """Whether a row has no invalid bytes; else count it as a bad row."""
        invalid = INVALID.search(text) if self.skips else None
        if invalid is None:
            return True

        reason = ""
        if not self.notes.skipped.count:
            # Only the reason of the first is shown.
            line = text.encode("utf-8", "surrogateescape")
            start = len(text[: invalid.start()].encode())
            parts = undecodable(path, line, start, self.encoding)
            reason = "; ".join(part for part in parts if part != SKIP)
        self.notes.skipped.add(where, reason)
        return False
