"""The options of `predict`, and whether they fit together."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields, replace
from math import isnan
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.command_options import Device, TextColumns, data_overrides
from encoder_cls.system.files import STANDARD_INPUT, stream_named
from encoder_cls.system.libraries import check_excel_installed, check_installed
from encoder_cls.system.terminal import note

OutputFormat = Literal["text", "jsonl", "tsv", "csv", "xlsx", "html", "parquet"]
FORMATS: tuple[str, ...] = get_args(OutputFormat)
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
    """The options of `predict`: each is declared here alone.

    They are the options of the command, and a folder of predictions records them, but for
    `NOT_RECORDED`; `checked` fills in those that were not given.
    """

    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts to classify; write -- before one that starts with a dash."),
    ] = None
    model: Annotated[
        Path | None,
        typer.Option(help="A run or model folder, or hub:owner/name. Default: the newest run."),
    ] = None
    source: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="A file, a folder or a pattern of files. For standard input: - if each line is a "
            "text, or -.csv, -.jsonl and so on if it has this format.",
        ),
    ] = None
    output: Annotated[
        str | None,
        typer.Option(
            help="Write to this file, or one file per input file to FOLDER/.", metavar="FILE"
        ),
    ] = None
    text_columns: TextColumns = None
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="How to read --input: data.delimiter=..., data.encoding=... or data.sheet=... "
            "Default: separator and encoding as in training.",
        ),
    ] = None
    bad_rows: Annotated[
        Literal["error", "skip"], typer.Option(help="What to do with rows that cannot be read.")
    ] = "error"
    output_format: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format",
            help="Format of the predictions. Default: by the ending of --output, or text.",
        ),
    ] = None
    keep_columns: Annotated[
        bool | None,
        typer.Option(
            "--keep-columns/--no-keep-columns",
            help="Keep all columns of the input beside the predictions. Default: only if the "
            "output is Excel, or CSV from CSV or Excel.",
        ),
    ] = None
    fill: Annotated[
        str | None,
        typer.Option(
            help="Write the labels into the empty cells of this column of the input, for example "
            "that of the labels in training. Keeps all columns.",
            metavar="COLUMN",
        ),
    ] = None
    top_k: Annotated[int, typer.Option(min=1, help="The number of classes to show.")] = 1
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Withhold labels that are less probable. For a multi-label model, this replaces "
            "the thresholds of all labels.",
        ),
    ] = None
    min_precision: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Withhold uncertain labels so that at least this share of the other labels is "
            "correct. Held-out texts guarantee it. Multi-label, it holds for each label.",
        ),
    ] = None
    whole_texts: Annotated[
        bool,
        typer.Option(
            "--whole-texts",
            help="Multi-label: apply --min-precision to texts with all of their labels, of which "
            "none is wrong or missing.",
        ),
    ] = False
    coverage: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Predict a set of classes for each text so that at least this share of the sets "
            "has the correct class. Held-out texts guarantee it.",
        ),
    ] = None
    level: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Predict the codes of this level, 1 at the top, of a model with data.levels. "
            "Default: the classes.",
        ),
    ] = None
    back_off: Annotated[
        bool,
        typer.Option(
            "--back-off",
            help="With --min-precision, for a model with data.levels: predict the deepest code "
            "that is sure enough, such as 25 where 2512 is not. The share holds for all answers.",
        ),
    ] = False
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="The maximum number of tokens in a batch. Default: by the device."
        ),
    ] = None
    explained: Annotated[
        bool, typer.Option("--explain", help="Show which words count for or against the label.")
    ] = False
    sort: Annotated[
        Literal["probability"] | None,
        typer.Option(help="Sort the predictions, the least probable one first."),
    ] = None
    decimal: Annotated[
        Literal["point", "comma"],
        typer.Option(
            help="The decimal mark in CSV and TSV. With comma, semicolons separate the fields of "
            "CSV, as spreadsheets expect it then."
        ),
    ] = "point"
    attention: Annotated[
        Path | None,
        typer.Option(
            help="Write the attention maps of the first texts to this HTML file; .svg, .png or "
            ".pdf draws those of the first text."
        ),
    ] = None
    device: Device = "auto"
    engine: Annotated[
        Literal["auto", "numpy", "torch"],
        typer.Option(help="The library that computes the encoder."),
    ] = "auto"
    runner: Annotated[
        str,
        typer.Option(
            metavar="local|ray",
            help="local, or ray: workers of Ray classify Parquet files at a path or URI.",
        ),
    ] = "local"
    workers: Annotated[int, typer.Option(min=1, help="The number of workers of --runner ray.")] = 2

    @property
    def has_files(self) -> bool:
        """Whether texts come from files, rather than from the command or standard input."""
        return self.source not in {None, STANDARD_INPUT}

    @property
    def answers_classes(self) -> bool:
        """Whether answers are classes, rather than codes of a level or of any level."""
        return self.level is None and not self.back_off

    @property
    def into_folder(self) -> bool:
        """Whether the output is a folder, with a file for each file of the input.

        Its name ends with a slash, it is a folder, or it is a new name without an ending and the
        input has several files.
        """
        output = self.output or ""
        if output.endswith(("/", os.sep)):
            return True
        if not output or not self.has_files:
            return False

        path = Path(output)
        source = Path(str(self.source))
        has_several_files = source.is_dir() or not source.exists()
        is_new_name = not path.suffix and not path.exists()
        return path.is_dir() or (has_several_files and is_new_name)

    @property
    def reading_overrides(self) -> dict[str, Any]:
        """The options of reading that differ from those of the training."""
        return data_overrides(self.overrides, "delimiter", "encoding", "sheet")


NOT_RECORDED = {
    "texts",
    "model",
    "source",
    "output",
    "batch_tokens",
    "attention",
    "device",
    "runner",
    "workers",
}


def checked(request: Request, runs: Path) -> Request:
    """Check that the options fit together, and fill in those that were not given.

    The usual model is that of the newest run in the folder `runs`. Where predictions are printed,
    also by a name such as /dev/stdout, `output` is None.

    Raises:
        ConfigError: options contradict each other, or there is no model.
    """
    _check_thresholds(request)
    _check_input(request)

    source = request.source
    if source is None and not request.texts:
        source = STANDARD_INPUT
    output = request.output
    is_printed = not output or stream_named(Path(output)) == 1
    if is_printed and not request.into_folder:
        output = None
    output_format: Any = request.output_format or _usual_format(request)
    request = replace(request, source=source, output=output, output_format=output_format)

    if request.attention:
        from encoder_cls.bulk.attention_file import check_attention_file

        check_attention_file(request.attention)
    if request.into_folder:
        _check_folder(request)
    if request.keep_columns:
        _check_kept_columns("--keep-columns", request)
    if request.fill is not None:
        _check_fill(request)
    _check_format(request)

    return replace(request, model=request.model or newest_model(runs))


def check_runner_request(request: Request) -> None:
    """Check the options of a `--runner` other than `local`.

    Raises:
        ConfigError: one is missing, or not for a runner.
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
    """Find the newest run with a model, and note it; a `ConfigError` if there is none."""
    from encoder_cls.run.run_folder import newest_with_model

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

    if request.back_off and request.min_precision is None:
        raise ConfigError("--back-off: needs --min-precision, which says how sure a code must be")
    if request.level is not None and request.back_off:
        raise ConfigError("--level: names the level of all answers; leave out --back-off")
    if request.explained and not request.answers_classes:
        raise ConfigError(
            "--explain: words speak for a class, not for a code above it; leave out --level and "
            "--back-off"
        )


def _check_input(request: Request) -> None:
    if request.texts and request.source is not None:
        raise ConfigError("give texts or --input, not both")
    if request.text_columns and not request.has_files:
        raise ConfigError(f"--text-column {ONLY_FOR_FILES}")

    if not request.texts and not request.has_files:
        if sys.stdin is None:
            raise ConfigError("standard input is closed; give texts, or --input FILE")
        if request.source is None and sys.stdin.isatty():
            raise ConfigError(
                'give texts, such as: encoder-cls predict "some text", or --input FILE'
            )

    if request.reading_overrides and not request.has_files:
        raise ConfigError("--set works only with files: it sets how files are read")


def _check_folder(request: Request) -> None:
    where = f"--output {request.output}"
    if not request.has_files:
        raise ConfigError(
            f"{where}: a folder takes only the predictions for files (--input FILES); name a file"
        )
    if request.attention:
        raise ConfigError(
            "--attention: shows only a few texts, so it needs a file as --output; leave out "
            "--attention, or name a file"
        )


def _check_format(request: Request) -> None:
    output_format = request.output_format
    if output_format in BINARY_FORMATS:
        if request.output is None:
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


def _check_fill(request: Request) -> None:
    """Check that the output keeps the filled column, with values that can change."""
    _check_kept_columns("--fill", request)
    if request.keep_columns is False:
        raise ConfigError("--fill: fills a column of the input, which --no-keep-columns leaves out")
    if request.output_format == "parquet":
        raise ConfigError(
            "--fill: does not fill columns of Parquet, which are copied as they are; choose "
            "--format csv, tsv, xlsx or jsonl"
        )


def _check_kept_columns(option: str, request: Request) -> None:
    if not request.has_files:
        raise ConfigError(f"{option} {ONLY_FOR_FILES}")
    if request.output_format in FORMATS_WITHOUT_COLUMNS:
        raise ConfigError(
            f"{option}: the format {request.output_format} has no columns; choose --format csv, "
            "tsv, xlsx, jsonl or parquet"
        )


def _usual_format(request: Request) -> str:
    """JSON lines in a folder, else the format that the output's ending says."""
    if request.into_folder:
        return "jsonl"
    output = request.output or ""
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
