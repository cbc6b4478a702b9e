"""What the options of `predict` ask for, each by itself and together: read, or refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from encoder_cls.cli.options import bad_rows_named, reading_settings
from encoder_cls.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_cls.cli.request import Format

FORMATS = ("text", "jsonl", "tsv", "csv", "html", "parquet")
SLASHES = tuple(filter(None, (os.sep, os.altsep)))
TEXT_ENDINGS = ("txt", "log", "out")  # of files in which lines of text are expected
# What takes the place of some formats.
ANSWERED_BY = dict.fromkeys(("xlsx", "xls", "ods"), "spreadsheets open .csv") | {"json": "lines of JSON are .jsonl"}


def source_of(texts: Sequence[str] | None, named: str | None, text_columns: Sequence[str] | None) -> str | None:
    """What texts are read from; none where they are given.

    Raises:
        ConfigError: there are none, or twice as many as can be, or columns of what has none.
    """
    if texts and named is not None:
        raise ConfigError("give texts or --input, not both")
    if named == "":
        raise ConfigError("--input: names no file")
    if text_columns and (texts or named in {None, "-"}):
        raise ConfigError("--text-column is for files: texts given here, and lines of standard input, have no columns")
    if texts:
        return None
    if named in {None, "-"} and sys.stdin is None:
        raise ConfigError("standard input is closed; give texts, or --input FILE")
    if named is None and sys.stdin.isatty():
        raise ConfigError('give texts, such as: encoder-cls predict "some text", or --input FILE')
    return named or "-"


def reading_of(overrides: Sequence[str], bad_rows: str, source: str | None) -> dict[str, Any]:
    """How the input is to be read, by the names of `Request`.

    Raises:
        ConfigError: in a way that there is none of, or texts that are in no file.
    """
    if overrides and source in {None, "-"}:
        raise ConfigError("--set is for files: it says how they are read")
    try:
        bad_rows_named(bad_rows)
    except ValueError as error:
        raise ConfigError(f"--bad-rows: {error}") from None
    return {"bad_rows": bad_rows, **reading_settings(overrides, known=("delimiter", "encoding"))}


def output_of(named: str | None, source: str | None) -> tuple[Path | None, bool]:
    """Where answers go, and whether that is a folder, in which each file of the input gets one.

    Raises:
        ConfigError: it has no name, or there are no files to be answered in a folder.
    """
    if named is None:
        return None, False
    if not named:
        raise ConfigError("--output: names no file")
    has_files = source not in {None, "-"}
    into_folder = named.endswith(SLASHES) or (has_files and Path(named).is_dir())
    if into_folder and not has_files:
        raise ConfigError(f"--output {named}: a folder takes the answers to files (--input FILES); name a file")
    return Path(named), into_folder


def format_of(named: str | None, output: Path | None) -> Format:
    """The format that is named, or that the ending of the output means.

    Raises:
        ConfigError: there is no such format, or none is known by the ending.
    """
    if named is not None:
        if named not in FORMATS:
            raise ConfigError(f"--format {named}: known formats are {', '.join(FORMATS[:-1])} and {FORMATS[-1]}")
        return cast("Format", named)
    ending = output.suffix.lower().removeprefix(".") if output else ""
    if ending in FORMATS:
        return cast("Format", ending)
    if ending and ending not in TEXT_ENDINGS:
        known = ", ".join(f".{name}" for name in FORMATS if name != "text")
        of_text = ", ".join(f".{name}" for name in TEXT_ENDINGS)
        instead = f" ({ANSWERED_BY[ending]})" if ending in ANSWERED_BY else ""
        raise ConfigError(
            f"--output {output}: no format is known by the ending .{ending}{instead}; there are {known}, and {of_text} "
            "for lines of text; --format names one for any ending"
        )
    return "text"


def check_keep_columns(output_format: Format, source: str | None) -> None:
    """Make sure that there are columns to keep, and a place for them.

    Raises:
        ConfigError: there are none.
    """
    if source in {None, "-"}:
        raise ConfigError("--keep-columns is for files: texts given here, and lines of standard input, have no columns")
    if output_format in {"text", "html"}:
        raise ConfigError(f"--keep-columns: {output_format} has no columns; --format csv, tsv, jsonl or parquet has")


def check_parquet(output: Path | None) -> None:
    """Make sure that Parquet can be written, into a file.

    Raises:
        ConfigError: it cannot.
    """
    from encoder_cls.cli.parquet_output import check_pyarrow

    if output is None:
        raise ConfigError("--format parquet: is not for printing; --output names a file for it")
    check_pyarrow()


def check_runner(runner: str, input_file: str | None, output_named: str | None, others: set[str]) -> None:
    """Make sure that a runner gets what it can do.

    Raises:
        ConfigError: it does not.
    """
    if runner != "ray":
        raise ConfigError(f"--runner {runner}: known runners are local, ray")
    if not input_file or not output_named:
        raise ConfigError("--runner ray: needs --input and --output, each a path or URI of a folder of Parquet files")
    if others:
        raise ConfigError(f"--runner ray: {', '.join(sorted(others))}: not with this runner; leave it out")
