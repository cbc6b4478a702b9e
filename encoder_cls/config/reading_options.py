"""How files are read: separator, encoding, sheet, and what happens to bad rows."""

from __future__ import annotations

from dataclasses import dataclass

from encoder_cls.system.encodings import UTF8, delimiter_named, encoding_named


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How the files of a source are read.

    Attributes:
        delimiter: of CSV and TSV, a character or a name such as `tab`; None for the usual one, or
            the only one that fits the header.
        is_encoding_sure: whether to insist on `encoding`; else a file that seems to be UTF-8 is
            read so.
        sheet: of Excel files; None for the one with the columns.
        bad_rows: `error`, or `skip` to leave out rows that cannot be read.

    Raises:
        ValueError: there is no such separator or encoding.
    """

    delimiter: str | None = None
    encoding: str = UTF8
    is_encoding_sure: bool = True
    sheet: str | None = None
    bad_rows: str = "error"

    def __post_init__(self) -> None:
        encoding_named(self.encoding)
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", delimiter_named(self.delimiter))

    @property
    def skips_bad_rows(self) -> bool:
        """Whether rows that cannot be read are left out."""
        return self.bad_rows == "skip"

    def for_other_files(self) -> ReadingOptions:
        """Options for files that are probably written as the data is."""
        return ReadingOptions(
            delimiter=self.delimiter, encoding=self.encoding, is_encoding_sure=False
        )

    def overridden(
        self,
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
        sheet: str | None = None,
        bad_rows: str | None = None,
    ) -> ReadingOptions:
        """Replace the options that are given."""
        return ReadingOptions(
            delimiter=delimiter or self.delimiter,
            encoding=encoding or self.encoding,
            is_encoding_sure=encoding is not None or self.is_encoding_sure,
            sheet=sheet or self.sheet,
            bad_rows=bad_rows or self.bad_rows,
        )
