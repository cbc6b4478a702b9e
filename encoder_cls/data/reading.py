"""How files of data are read, and what came up while they were: one for each time that a source is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from encoder_cls.data.records import SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.text_files import UTF8, invalid_line, is_utf8, seems_utf8, text_lines, undecodable

SHOWN_ROWS = 3
SKIP = "data.bad_rows=skip (predict: --bad-rows skip) leaves such rows out"


class SkippedRows(NamedTuple):
    """Rows that were left out since they cannot be read: where the first are, and what is wrong with the first."""

    num_rows: int = 0
    first: tuple[str, ...] = ()
    reason: str = ""

    def warning(self, of: str) -> Iterator[str]:
        """A sentence about those of a split or a source, if there are any."""
        if self.num_rows:
            locations = ", ".join(self.first) + (", …" if self.num_rows > len(self.first) else "")
            yield (
                f"rows of {of} that cannot be read, which are left out: {self.num_rows:,} ({locations}); the first: "
                f"{self.reason}"
            )


NONE_SKIPPED = SkippedRows()


class Reading:
    """How files are read, and what came up.

    Args:
        delimiter: what separates the fields of a table, `data.delimiter`; none: what is usual for its ending.
        encoding: of text files, `data.encoding`.
        is_sure: whether the encoding was asked for; else a file that seems to be UTF-8 is read as that.
        bad_rows: `error`, or `skip` for rows that cannot be read to be left out and counted.
        group_column: the column that says which rows belong together, `data.group_column`; none: there is none.
        tell: told what a person should know of how a file is read.

    Attributes:
        skipped: the rows that have been left out.
        notes: what has been told.
    """

    def __init__(
        self,
        *,
        delimiter: str | None = None,
        encoding: str = UTF8,
        is_sure: bool = True,
        bad_rows: str = "error",
        group_column: str | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.delimiter = delimiter
        self.encoding = encoding
        self._is_sure = is_sure
        self.skips = bad_rows == "skip"
        self.group_column = group_column
        self.skipped = NONE_SKIPPED
        self.notes: list[str] = []
        self._tell = tell

    def tell(self, message: str) -> None:
        """Tell a person how a file is read, once."""
        if message not in self.notes:
            self.notes.append(message)
            self._tell(message)

    def bad_row(self, where: SourceLocation | str, error: DataError) -> None:
        """A row that cannot be read, which is left out if that is asked for.

        Raises:
            DataError: the error, if it is not.
        """
        if not self.skips:
            raise error
        count, first, reason = self.skipped
        first += (str(where),) if count < SHOWN_ROWS else ()
        self.skipped = SkippedRows(
            count + 1, first, reason or str(error).removeprefix(f"{where}: ").removesuffix(f"; {SKIP}")
        )

    def lines(self, path: Path) -> Iterator[str]:
        """The lines of a text file; where bad rows are skipped, bytes that are not valid are kept: see `check_valid`.

        Raises:
            DataError: as `text_lines`.
        """
        encoding = self.encoding
        if not is_utf8(encoding) and seems_utf8(path):
            if self._is_sure:
                self.tell(
                    f"warning: {path}: is read as {encoding} (data.encoding), but seems to be UTF-8; "
                    "--set data.encoding=utf-8 reads it so"
                )
            else:
                self.tell(f"{path}: read as UTF-8, which it seems to be, not as {encoding} as in training")
                encoding = UTF8
        try:
            yield from text_lines(path, encoding, keep_invalid=self.skips)
        except DataError as error:
            if ", as other lines are; " in str(error):
                raise DataError(f"{error}, or {SKIP}") from None
            raise

    def check_valid(self, path: Path, where: SourceLocation, text: str) -> None:
        """Make sure that a row has no bytes that are not valid.

        Raises:
            DataError: it has.
        """
        line = invalid_line(text) if self.skips else None
        if line is None:
            return
        if self.skipped.num_rows:  # it is counted, and what is wrong with it is not told
            raise DataError(f"{where}: not {self.encoding} text")
        _refuse(path, where, line, self.encoding)


def _refuse(path: Path, where: SourceLocation, line: bytes, encoding: str) -> NoReturn:
    start = 0
    if is_utf8(encoding):
        try:
            line.decode(UTF8)
        except UnicodeDecodeError as error:
            start = error.start
    raise DataError(f"{where}: {undecodable(path, line, start, encoding)}")
