"""The options of `predict`: as they were typed, and checked, as the other modules take them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields
from math import isnan
from pathlib import Path

from encoder_cls.bulk.input_texts import InputOptions
from encoder_cls.bulk.standard_input import STANDARD_INPUT
from encoder_cls.errors import ConfigError
from encoder_cls.run.run_folder import newest_with_model
from encoder_cls.system.files import stream_named
from encoder_cls.system.libraries import check_installed
from encoder_cls.system.terminal import note

FORMATS = ("text", "jsonl", "tsv", "csv", "html", "parquet")
FORMATS_WITHOUT_COLUMNS = ("text", "html")
# The endings of files of plain text.
TEXT_ENDINGS = ("txt", "log", "out")

# What to choose instead of an ending that has no format.
SPREADSHEET_HINT = "spreadsheets open .csv"
ENDING_HINTS = {
    "xlsx": SPREADSHEET_HINT,
    "xls": SPREADSHEET_HINT,
    "ods": SPREADSHEET_HINT,
    "json": "lines of JSON are .jsonl",
}

RAY_OPTIONS = {"runner", "source", "output", "model", "engine", "workers"}
FOR_FILES = "is for files: texts given here, and lines of standard input, have no columns"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `predict` as they were typed; `source` is `--input`.

    The help of the options describes them (`cli/predict`).
    """

    texts: tuple[str, ...] = ()
    source: str | None = None
    output: str | None = None
    output_format: str | None = None
    model: Path | None = None
    text_columns: tuple[str, ...] = ()
    keep_columns: bool | None = None
    top_k: int = 1
    threshold: float | None = None
    min_precision: float | None = None
    coverage: float | None = None
    batch_tokens: int | None = None
    explained: bool = False
    attention: Path | None = None
    delimiter: str | None = None
    encoding: str | None = None
    bad_rows: str = "error"
    device: str = "auto"
    engine: str = "auto"
    runner: str = "local"
    workers: int = 2


@dataclass(frozen=True, kw_only=True)
class CheckedRequest:
    """A request whose options go together, with what they leave to be decided.

    Attributes:
        output: the file or folder of the predictions; None: standard output.
        into_folder: whether the output is a folder, with a file for each file of the input.
    """

    input: InputOptions
    output: Path | None
    into_folder: bool
    output_format: str
    model: Path
    top_k: int
    threshold: float | None
    min_precision: float | None
    coverage: float | None
    batch_tokens: int | None
    explained: bool
    attention: Path | None
    device: str
    engine: str


def check_request(request: Request, runs: Path) -> CheckedRequest:
    """Check a request, and decide what it leaves open: source, output, format and model.

    Raises:
        ConfigError: options that do not go together, or no model in the folder of runs.
    """
    has_files = request.source not in {None, STANDARD_INPUT}
    _check_thresholds(request)
    _check_input(request, has_files=has_files)
    if request.output == "":
        raise ConfigError("--output: names no file")

    into_folder = _goes_into_folder(request, has_files=has_files)
    if request.output_format:
        output_format = request.output_format
    elif into_folder:
        output_format = "jsonl"
    else:
        output_format = _format_by_ending(request.output or "")

    if into_folder:
        _check_folder(request, output_format, has_files=has_files)
    if request.keep_columns:
        _check_kept_columns(output_format, has_files=has_files)

    # Where the output is a name of standard output, predictions are printed as they come.
    output = None
    if request.output and (into_folder or stream_named(Path(request.output)) != 1):
        output = Path(request.output)
    if output_format == "parquet":
        if output is None:
            raise ConfigError("--format parquet: is not for printing; --output names a file for it")
        check_installed("pyarrow", needed_by="--format parquet")

    source = request.source
    if source is None and not request.texts:
        source = STANDARD_INPUT
    return CheckedRequest(
        input=InputOptions(
            texts=request.texts,
            source=source,
            text_columns=request.text_columns,
            keep_columns=request.keep_columns,
            delimiter=request.delimiter,
            encoding=request.encoding,
            bad_rows=request.bad_rows,
        ),
        output=output,
        into_folder=into_folder,
        output_format=output_format,
        model=request.model or newest_model(runs),
        top_k=request.top_k,
        threshold=request.threshold,
        min_precision=request.min_precision,
        coverage=request.coverage,
        batch_tokens=request.batch_tokens,
        explained=request.explained,
        attention=request.attention,
        device=request.device,
        engine=request.engine,
    )


def check_ray_request(request: Request) -> None:
    """Raise a `ConfigError` if `--runner ray` lacks an option, or has one that it does not take."""
    if not request.source or not request.output:
        raise ConfigError(
            "--runner ray: needs --input and --output, each a path or URI of a folder of "
            "Parquet files"
        )

    for field in fields(request):
        is_given = getattr(request, field.name) != field.default
        if is_given and field.name not in RAY_OPTIONS:
            raise ConfigError(
                "--runner ray: takes only --input, --output, --model, --engine and --workers"
            )


def newest_model(runs: Path) -> Path:
    """The newest run with a model, after a note on which one it is."""
    run = newest_with_model(runs)
    which = "the newest run"
    if not run.is_finished():
        which += ", which is not finished"
    note(f"model: {run.path} ({which}; --model names another)")
    return run.path


def _check_thresholds(request: Request) -> None:
    for share in (request.threshold, request.min_precision, request.coverage):
        # The command line takes NaN for a number of any range.
        if share is not None and isnan(share):
            raise ConfigError(
                "--threshold, --min-precision, --coverage: nan is not in the range 0<=x<=1"
            )

    if request.threshold is not None and request.min_precision is not None:
        raise ConfigError(
            "give --threshold or --min-precision, not both: the one follows from the other"
        )


def _check_input(request: Request, *, has_files: bool) -> None:
    if request.texts and request.source is not None:
        raise ConfigError("give texts or --input, not both")
    if request.source == "":
        raise ConfigError("--input: names no file")
    if request.text_columns and not has_files:
        raise ConfigError(f"--text-column {FOR_FILES}")

    if not request.texts and not has_files:
        if sys.stdin is None:
            raise ConfigError("standard input is closed; give texts, or --input FILE")
        if request.source is None and sys.stdin.isatty():
            raise ConfigError(
                'give texts, such as: encoder-cls predict "some text", or --input FILE'
            )

    if (request.delimiter or request.encoding) and not has_files:
        raise ConfigError("--set is for files: it sets how they are read")


def _goes_into_folder(request: Request, *, has_files: bool) -> bool:
    """Whether the output is a folder.

    It is one if its name ends like that of a folder, or if the folder exists. For several files of
    input, a new name without an ending is a folder, too.
    """
    output = request.output or ""
    if output.endswith(("/", os.sep)):
        return True
    if not output or not has_files:
        return False

    path = Path(output)
    source = Path(str(request.source))
    has_several_files = source.is_dir() or not source.exists()
    is_new_name = not path.suffix and not path.exists()
    return path.is_dir() or (has_several_files and is_new_name)


def _check_folder(request: Request, output_format: str, *, has_files: bool) -> None:
    where = f"--output {request.output}"
    if not has_files:
        raise ConfigError(
            f"{where}: a folder takes the predictions for files (--input FILES); name a file"
        )
    if output_format == "html":
        raise ConfigError(f"{where}: a page holds the first texts only; jsonl holds all")
    if request.attention:
        raise ConfigError("--attention: is of a few texts; leave it out, or name a file")


def _check_kept_columns(output_format: str, *, has_files: bool) -> None:
    if not has_files:
        raise ConfigError(f"--keep-columns {FOR_FILES}")
    if output_format in FORMATS_WITHOUT_COLUMNS:
        raise ConfigError(
            f"--keep-columns: {output_format} has no columns; "
            "--format csv, tsv, jsonl or parquet has"
        )


def _format_by_ending(output: str) -> str:
    ending = Path(output).suffix.lower().removeprefix(".")
    if ending in FORMATS:
        return ending
    if not ending or ending in TEXT_ENDINGS:
        return "text"

    hint = ""
    if ending in ENDING_HINTS:
        hint = f" ({ENDING_HINTS[ending]})"
    endings = ", ".join(f".{name}" for name in FORMATS if name != "text")
    text_endings = ", ".join(f".{name}" for name in TEXT_ENDINGS)
    raise ConfigError(
        f"--output {output}: no format is known by the ending .{ending}{hint}; there are "
        f"{endings}, and {text_endings} for lines of text; --format names one for any ending"
    )
