"""The options of `predict`: `Request` as a person has typed them, `CheckedRequest` once checked."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields
from math import isnan
from pathlib import Path

from encoder_cls.bulk.attention_file import check_attention_file
from encoder_cls.bulk.input_texts import InputOptions
from encoder_cls.errors import ConfigError
from encoder_cls.run.run_folder import newest_with_model
from encoder_cls.system.files import STANDARD_INPUT, stream_named
from encoder_cls.system.libraries import check_excel_installed, check_installed
from encoder_cls.system.terminal import note

FORMATS = ("text", "jsonl", "tsv", "csv", "xlsx", "html", "parquet")
FORMATS_WITHOUT_COLUMNS = ("text", "html")
# Formats that are not text, which a terminal cannot show.
BINARY_FORMATS = ("xlsx", "parquet")
# The endings of file names that mean the format "text".
TEXT_ENDINGS = ("txt", "log", "out")

# For some endings without a format of predictions: what to choose instead.
SPREADSHEET_HINT = "spreadsheets open .xlsx"
ENDING_HINTS = {
    "xls": SPREADSHEET_HINT,
    "ods": SPREADSHEET_HINT,
    "json": "lines of JSON are .jsonl",
}

# The fields of `Request` that a runner takes.
RUNNER_OPTIONS = {"runner", "source", "output", "model", "engine", "workers"}
ONLY_FOR_FILES = (
    "works only with files: texts in the command and lines of standard input have no columns"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `predict` as they were typed.

    `encoder-cls predict --help` describes the options, and most fields have the name of their
    option. The other names: `source` is `--input`, `output_format` is `--format`, `text_columns` is
    `--text-column`, `explained` is `--explain`, and `delimiter`, `encoding` and `sheet` are
    given with `--set`. None means that an option was not given.
    """

    texts: tuple[str, ...] = ()
    source: str | None = None
    output: str | None = None
    output_format: str | None = None
    model: Path | None = None
    text_columns: tuple[str, ...] = ()
    keep_columns: bool | None = None
    fill: str | None = None
    top_k: int = 1
    threshold: float | None = None
    min_precision: float | None = None
    whole_texts: bool = False
    coverage: float | None = None
    batch_tokens: int | None = None
    explained: bool = False
    sort: str | None = None
    decimal: str = "point"
    attention: Path | None = None
    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    bad_rows: str = "error"
    device: str = "auto"
    engine: str = "auto"
    runner: str = "local"
    workers: int = 2


@dataclass(frozen=True, kw_only=True)
class CheckedRequest:
    """A request whose options are consistent, with defaults for those that were not given.

    The options that `PredictionOptions` has as well are explained there.

    Attributes:
        output: the file or folder for the predictions; None means standard output.
        into_folder: whether the output is a folder, with a file for each file of the input.
        output_format: one of `FORMATS`.
        model: the folder of the run or model.
        min_precision: the precision to guarantee by a threshold; None guarantees none.
        whole_texts: whether this is the precision of all labels of a text together, rather than of
            each label.
        coverage: the share of texts whose set of classes must contain the correct class; None
            predicts no sets.
        sort: "probability" sorts the predictions, the least probable one first; None keeps the
            order of the input.
        attention: the file for a page of attention maps; None writes none.
        device: "auto", "cpu", "cuda" or another device of PyTorch.
        engine: "auto", "numpy" or "torch".
    """

    input: InputOptions
    output: Path | None
    into_folder: bool
    output_format: str
    model: Path
    fill: str | None
    top_k: int
    threshold: float | None
    min_precision: float | None
    whole_texts: bool
    coverage: float | None
    batch_tokens: int | None
    explained: bool
    sort: str | None
    decimal: str
    attention: Path | None
    device: str
    engine: str


def check_request(request: Request, runs: Path) -> CheckedRequest:
    """Check a request, and find the source, the output, the format and the model.

    If the request names no model, the newest run with a model in the folder `runs` is used.

    Raises:
        ConfigError: some options contradict each other, or there is no model.
    """
    has_files = request.source not in {None, STANDARD_INPUT}
    _check_thresholds(request)
    _check_input(request, has_files=has_files)

    into_folder = _is_output_folder(request, has_files=has_files)
    if request.output_format:
        output_format = request.output_format
    elif into_folder:
        output_format = "jsonl"
    else:
        output_format = _format_by_ending(request.output or "")

    if request.attention:
        check_attention_file(request.attention)
    if into_folder:
        _check_folder(request, has_files=has_files)
    if request.keep_columns:
        _check_kept_columns("--keep-columns", output_format, has_files=has_files)
    if request.fill is not None:
        _check_fill(request, output_format, has_files=has_files)

    # A name of standard output, such as /dev/stdout, counts as no output file, so that predictions
    # are printed at once.
    output = None
    if request.output and (into_folder or stream_named(Path(request.output)) != 1):
        output = Path(request.output)
    _check_format(request, output_format, is_printed=output is None)

    source = request.source
    if source is None and not request.texts:
        source = STANDARD_INPUT
    return CheckedRequest(
        input=InputOptions(
            texts=request.texts,
            source=source,
            text_columns=request.text_columns,
            keep_columns=True if request.fill else request.keep_columns,
            delimiter=request.delimiter,
            encoding=request.encoding,
            sheet=request.sheet,
            bad_rows=request.bad_rows,
        ),
        output=output,
        into_folder=into_folder,
        output_format=output_format,
        model=request.model or newest_model(runs),
        fill=request.fill,
        top_k=request.top_k,
        threshold=request.threshold,
        min_precision=request.min_precision,
        whole_texts=request.whole_texts,
        coverage=request.coverage,
        batch_tokens=request.batch_tokens,
        explained=request.explained,
        sort=request.sort,
        decimal=request.decimal,
        attention=request.attention,
        device=request.device,
        engine=request.engine,
    )


def check_runner_request(request: Request) -> None:
    """Check the options of another `--runner` than `local`.

    Raises:
        ConfigError: an option is missing, or is one that a runner does not take.
    """
    if not request.source or not request.output:
        raise ConfigError(
            f"--runner {request.runner}: needs --input and --output, each a path or URI of a "
            "folder of Parquet files"
        )

    for field in fields(request):
        is_given = getattr(request, field.name) != field.default
        if is_given and field.name not in RUNNER_OPTIONS:
            raise ConfigError(
                f"--runner {request.runner}: takes only --input, --output, --model, --engine and "
                "--workers"
            )


def newest_model(runs: Path) -> Path:
    """Find the newest run with a model in a folder of runs, and note which run it is.

    Raises:
        ConfigError: no run has a model.
    """
    run = newest_with_model(runs)
    which = "the newest run"
    if not run.is_finished():
        which += ", which is not finished"
    note(f"model: {run.path} ({which}; --model names another)")
    return run.path


def _check_thresholds(request: Request) -> None:
    for share in (request.threshold, request.min_precision, request.coverage):
        # The parser of the command line checks the range, but lets NaN through.
        if share is not None and isnan(share):
            raise ConfigError(
                "--threshold, --min-precision, --coverage: nan is not in the range 0<=x<=1"
            )

    if request.threshold is not None and request.min_precision is not None:
        raise ConfigError(
            "give --threshold or --min-precision, not both: --min-precision chooses the threshold"
        )
    if request.whole_texts and request.min_precision is None:
        raise ConfigError("--whole-texts: needs --min-precision, which it applies to whole texts")


def _check_input(request: Request, *, has_files: bool) -> None:
    if request.texts and request.source is not None:
        raise ConfigError("give texts or --input, not both")
    if request.text_columns and not has_files:
        raise ConfigError(f"--text-column {ONLY_FOR_FILES}")

    if not request.texts and not has_files:
        if sys.stdin is None:
            raise ConfigError("standard input is closed; give texts, or --input FILE")
        if request.source is None and sys.stdin.isatty():
            raise ConfigError(
                'give texts, such as: encoder-cls predict "some text", or --input FILE'
            )

    if (request.delimiter or request.encoding or request.sheet) and not has_files:
        raise ConfigError("--set works only with files: it sets how files are read")


def _is_output_folder(request: Request, *, has_files: bool) -> bool:
    """Whether the output is a folder, with a file for each file of the input.

    It is if its name ends with a slash or if it is an existing folder. If the input has several
    files, a new name without an ending is a folder, too.
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


def _check_folder(request: Request, *, has_files: bool) -> None:
    where = f"--output {request.output}"
    if not has_files:
        raise ConfigError(
            f"{where}: a folder takes only the predictions for files (--input FILES); name a file"
        )
    if request.attention:
        raise ConfigError(
            "--attention: shows only a few texts, so it needs a file as --output; leave out "
            "--attention, or name a file"
        )


def _check_format(request: Request, output_format: str, *, is_printed: bool) -> None:
    if output_format in BINARY_FORMATS:
        if is_printed:
            raise ConfigError(
                f"--format {output_format}: cannot be printed; name a file with --output"
            )
        if output_format == "xlsx":
            check_excel_installed("--format xlsx")
        else:
            check_installed("pyarrow", needed_by="--format parquet")

    if request.sort and output_format == "parquet":
        raise ConfigError(
            "--sort: does not sort Parquet, whose columns are copied as they are; sort it where it "
            "is read, or choose another --format"
        )
    if request.decimal == "comma" and output_format not in {"csv", "tsv"}:
        raise ConfigError(
            f"--decimal comma: is for CSV and TSV, and the format is {output_format}; in .xlsx, "
            "numbers have the decimal mark of the spreadsheet program"
        )


def _check_fill(request: Request, output_format: str, *, has_files: bool) -> None:
    """Check that the output keeps the column that is filled, with values that can change."""
    _check_kept_columns("--fill", output_format, has_files=has_files)
    if request.keep_columns is False:
        raise ConfigError("--fill: fills a column of the input, which --no-keep-columns leaves out")
    if output_format == "parquet":
        raise ConfigError(
            "--fill: does not fill columns of Parquet, which are copied as they are; choose "
            "--format csv, tsv, xlsx or jsonl"
        )


def _check_kept_columns(option: str, output_format: str, *, has_files: bool) -> None:
    if not has_files:
        raise ConfigError(f"{option} {ONLY_FOR_FILES}")
    if output_format in FORMATS_WITHOUT_COLUMNS:
        raise ConfigError(
            f"{option}: the format {output_format} has no columns; choose --format csv, tsv, "
            "xlsx, jsonl or parquet"
        )


def _format_by_ending(output: str) -> str:
    """The format for the name of an output file; a name without an ending means text."""
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
        f"--output {output}: no format has the ending .{ending}{hint}; choose an ending among "
        f"{endings}, or {text_endings} for lines of text, or name the format with --format"
    )
