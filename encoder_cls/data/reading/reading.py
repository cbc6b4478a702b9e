"""One reading of a source: its options, and notes about its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from encoder_cls.config.reading_options import ReadingOptions
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.encodings import (
    INVALID,
    LONGEST_LINE,
    SKIP,
    UTF8,
    is_utf8,
    joins_utf8,
    seems_utf8,
    text_lines,
    undecodable,
)

SHOWN_ROWS = 3


@dataclass
class LeftOut:
    """A count of rows that are left out for the same kind of reason.

    Attributes:
        first: where the first rows are.
        reason: that of the first row.
    """

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

    @property
    def locations(self) -> str:
        """Where the first rows are, with an ellipsis if there are more."""
        locations = ", ".join(self.first)
        if self.count > len(self.first):
            locations += ", …"
        return locations

    def __str__(self) -> str:
        return f"{self.count:,} ({self.locations})"


@dataclass
class Notes:
    """Notes about the reading of a source; `messages` are for a person.

    Attributes:
        skipped: rows that cannot be read.
        empty: rows without a text.
        num_unread: rows that `Reading.fraction` leaves out.
    """

    messages: list[str] = field(default_factory=list)
    skipped: LeftOut = field(default_factory=LeftOut)
    empty: LeftOut = field(default_factory=LeftOut)
    weightless: LeftOut = field(default_factory=LeftOut)
    repeated_headers: LeftOut = field(default_factory=LeftOut)
    num_unread: int = 0

    def warnings(self, source: str) -> Iterator[str]:
        """Warn of rows that were left out of a source with this name."""
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
    """Do nothing with a message."""


# The seed of the choice of rows, if only a share of them is read.
SEED = 0


@dataclass
class Reading:
    """One reading of a source, with the notes about its rows.

    Attributes:
        fraction: of the rows, chosen by `random`.
        notify: receives each message once.
    """

    options: ReadingOptions = field(default_factory=ReadingOptions)
    fraction: float = 1.0
    random: Random = field(default_factory=lambda: Random(SEED))
    notify: Callable[[str], None] = _ignore
    notes: Notes = field(default_factory=Notes)

    def leaves_out_row(self) -> bool:
        """Whether `fraction` leaves out the next row; asked before any work for it."""
        if self.fraction >= 1 or self.random.random() < self.fraction:
            return False
        self.notes.num_unread += 1
        return True

    def note(self, message: str) -> None:
        """Keep a message, and `notify`, unless it is known."""
        if message not in self.notes.messages:
            self.notes.messages.append(message)
            self.notify(message)

    def bad_row(self, error: DataError) -> None:
        """Count a row that cannot be read, or raise its error if bad rows are not skipped."""
        if not self.options.skips_bad_rows:
            raise error
        self.notes.skipped.add(error.where, error.what)

    def lines(self, path: Path, *, longest: int = LONGEST_LINE) -> Iterator[str]:
        """Yield the lines of a text file, with their ends.

        Raises:
            DataError: a line has more than `longest` bytes (-1 sets no limit), or cannot be
                decoded, unless bad rows are skipped: then `is_valid` finds its bytes.
        """
        encoding = self.options.encoding
        if not is_utf8(encoding) and seems_utf8(path):
            if self.options.is_encoding_sure:
                self.note(
                    f"warning: {path}: is read as {encoding} (data.encoding), but seems to be "
                    "UTF-8; --set data.encoding=utf-8 reads it so"
                )
            else:
                self.note(
                    f"{path}: read as UTF-8, which it seems to be, not as {encoding} as in training"
                )
                encoding = UTF8
        elif joins_utf8(path, encoding):
            self.note(
                f"warning: {path}: is read as {encoding} (data.encoding), but some of its lines "
                "seem to be UTF-8; save all of it as UTF-8"
            )
        yield from text_lines(
            path, encoding, keep_invalid=self.options.skips_bad_rows, longest=longest
        )

    def is_valid(self, path: Path, where: SourceLocation, text: str) -> bool:
        """Whether a row of `lines` has no undecodable bytes; else it is counted."""
        invalid = INVALID.search(text) if self.options.skips_bad_rows else None
        if invalid is None:
            return True

        reason = ""
        if not self.notes.skipped.count:
            # Find the reason for the first row only: no other reason is shown.
            line = text.encode("utf-8", "surrogateescape")
            start = len(text[: invalid.start()].encode())
            parts = undecodable(path, line, start, self.options.encoding)
            reason = "; ".join(part for part in parts if part != SKIP)
        self.notes.skipped.add(where, reason)
        return False
