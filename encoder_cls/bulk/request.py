"""The options of `predict`, and which of them go together."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import NamedTuple

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.errors import ConfigError, EncoderClsError
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.run.run_folder import newest_with_model, run_of
from encoder_cls.system.files import read_json, reporting_os_errors, stream_named
from encoder_cls.system.libraries import check_installed
from encoder_cls.system.terminal import note

STANDARD_INPUT = "-"
FORMATS = ("text", "jsonl", "tsv", "csv", "html", "parquet")
TEXT_ENDINGS = ("txt", "log", "out")  # of files of plain text
INSTEAD = dict.fromkeys(("xlsx", "xls", "ods"), "spreadsheets open .csv") | {
    "json": "lines of JSON are .jsonl"
}
OPTIONS_OF_RAY = {"runner", "source", "output", "model", "engine", "workers"}
NO_COLUMNS = "is for files: texts given here, and lines of standard input, have no columns"


# The name of standard input with the ending of its format.
_STREAM_WITH_FORMAT = re.compile(r"-(\.[a-z]+)+")


class Request(NamedTuple):
    """The options of `predict`, which describe the fields without a comment."""

    output_format: str | None = None  # None: by the ending of `output`
    texts: tuple[str, ...] = ()
    source: str | None = None  # of `--input`; None: `texts`, or standard input
    output: str | None = None
    into_folder: bool = False  # `output` gets a file for each file of the input; set by `checked`
    model: Path | None = None
    # Empty: as in training, like `delimiter` and `encoding` if None.
    text_columns: tuple[str, ...] = ()
    keep_columns: bool | None = None  # None: in CSV of CSV and Excel files
    top_k: int = 1
    threshold: float | None = None  # None: multi-label the thresholds of the model
    min_precision: float | None = None
    coverage: float | None = None
    # Least probability of a text's set of classes; set by `with_guarantees`.
    set_threshold: float | None = None
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

    def checked(self, runs: Path) -> Request:
        """Check that the options go together (`ConfigError`), and decide source, output, format and model."""
        if self.runner == "ray":
            self._check_runner()
            return self._replace(model=self.model or _newest(runs))
        files = self.source not in {None, STANDARD_INPUT}
        reads_stream = not self.texts and not files
        is_typed = (
            reads_stream and self.source is None and sys.stdin is not None and sys.stdin.isatty()
        )
        has_two = self.threshold is not None and self.min_precision is not None
        has_nan = any(isnan(it or 0) for it in (self.threshold, self.min_precision, self.coverage))
        _refuse(
            (
                has_nan,
                "--threshold, --min-precision, --coverage: nan is not in the range 0<=x<=1",
            ),  # Typer takes it
            (
                has_two,
                "give --threshold or --min-precision, not both: the one follows from the other",
            ),
            (self.texts and self.source is not None, "give texts or --input, not both"),
            (self.source == "", "--input: names no file"),
            (self.text_columns and not files, f"--text-column {NO_COLUMNS}"),
            (
                reads_stream and sys.stdin is None,
                "standard input is closed; give texts, or --input FILE",
            ),
            (is_typed, 'give texts, such as: encoder-cls predict "some text", or --input FILE'),
            (
                (self.delimiter or self.encoding) and not files,
                "--set is for files: it sets how they are read",
            ),
            (self.output == "", "--output: names no file"),
        )
        output = self.output or ""
        into_folder = output.endswith(("/", os.sep)) or (
            files and bool(output) and self._names_folder(Path(output))
        )
        output_format = self.output_format or (
            "jsonl" if into_folder else _format_by_ending(output)
        )
        where, has_columns = f"--output {output}", output_format not in {"text", "html"}
        no_columns = f"--keep-columns: {output_format} has no columns; --format csv, tsv, jsonl or parquet has"
        _refuse(
            (
                into_folder and not files,
                f"{where}: a folder takes the answers to files (--input FILES); name a file",
            ),
            (
                into_folder and output_format == "html",
                f"{where}: a page holds the first texts only; jsonl holds all",
            ),
            (
                into_folder and self.attention,
                "--attention: is of a few texts; leave it out, or name a file",
            ),
            (self.keep_columns and not files, f"--keep-columns {NO_COLUMNS}"),
            (self.keep_columns and not has_columns, no_columns),
        )
        # Into a name of standard output, answers are printed as they come.
        is_file = bool(output) and (into_folder or stream_named(Path(output)) != 1)
        if output_format == "parquet":
            _refuse(
                (not is_file, "--format parquet: is not for printing; --output names a file for it")
            )
            check_installed("pyarrow", needed_by="--format parquet")
        return self._replace(
            model=self.model or _newest(runs),
            source=self.source or (None if self.texts else STANDARD_INPUT),
            output=output if is_file else None,
            into_folder=into_folder,
            output_format=output_format,
        )

    def _names_folder(self, output: Path) -> bool:
        """Whether an output is a folder, or a new name without an ending for the answers to several files."""
        source = Path(str(self.source))
        has_several = source.is_dir() or not source.exists()
        return output.is_dir() or (has_several and not output.suffix and not output.exists())

    def _check_runner(self) -> None:
        given = {
            name for name, value in self._asdict().items() if value != self._field_defaults[name]
        }
        needed = "needs --input and --output, each a path or URI of a folder of Parquet files"
        _refuse(
            (not self.source or not self.output, f"--runner ray: {needed}"),
            (
                given - OPTIONS_OF_RAY,
                "--runner ray: takes only --input, --output, --model, --engine and --workers",
            ),
        )

    def with_guarantees(self, classifier: Classifier) -> Request:
        """The request with the thresholds that guarantee precision and coverage; `ConfigError` if there are none."""
        shares = {"--min-precision": self.min_precision, "--coverage": self.coverage}
        found = {
            option: _guaranteed(classifier, option, it)
            for option, it in shares.items()
            if it is not None
        }
        threshold = found.get("--min-precision", self.threshold)
        return self._replace(threshold=threshold, set_threshold=found.get("--coverage"))


@contextmanager
def reading_stream_as_file(request: Request) -> Iterator[Request]:
    """Save a standard input that has a format, such as `-.csv`, as a file while the block runs.

    A table is read several times: its separator, its columns, its rows.

    Raises:
        ConfigError: the source is another stream, whose name does not tell its format.
        EncoderClsError: the disk has no room for it.
    """
    source = request.source or ""
    if _is_nameless_stream(source):
        raise ConfigError(
            f"--input {source}: its name does not tell the format of this stream; as standard input it can have one, "
            f"as in: encoder-cls predict --input -.csv < {source}"
        )
    if not _STREAM_WITH_FORMAT.fullmatch(source):
        yield request
        return

    if sys.stdin is None:
        raise ConfigError("standard input is closed; give texts, or --input FILE")
    with tempfile.TemporaryDirectory(prefix="encoder-cls-") as folder:
        path = Path(folder) / f"stdin{source.removeprefix(STANDARD_INPUT)}"
        with reporting_os_errors(path), path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield request._replace(source=str(path))


def _is_nameless_stream(source: str) -> bool:
    """Whether a source is a pipe or a device without an ending: /dev/stdin, a FIFO, or a shell's <(...)."""
    path = Path(source)
    if source in {"", STANDARD_INPUT} or path.suffix:
        return False
    return path.is_fifo() or path.is_char_device()


def _newest(runs: Path) -> Path:
    """The newest run with a model; notes which one it is."""
    run = newest_with_model(runs)
    unfinished = "" if run.is_finished() else ", which is not finished"
    note(f"model: {run.path} (the newest run{unfinished}; --model names another)")
    return run.path


def _refuse(*rules: tuple[object, str]) -> None:
    """Raise a `ConfigError` with the message of the first broken rule."""
    for is_broken, message in rules:
        if is_broken:
            raise ConfigError(message)


def _format_by_ending(output: str) -> str:
    ending = Path(output).suffix.lower().removeprefix(".")
    if ending in FORMATS:
        return ending
    if ending and ending not in TEXT_ENDINGS:
        known = ", ".join(f".{name}" for name in FORMATS if name != "text")
        of_text = ", ".join(f".{name}" for name in TEXT_ENDINGS)
        instead = f" ({INSTEAD[ending]})" if ending in INSTEAD else ""
        raise ConfigError(
            f"--output {output}: no format is known by the ending .{ending}{instead}; there are {known}, and {of_text} "
            "for lines of text; --format names one for any ending"
        )
    return "text"


def _guaranteed(classifier: Classifier, option: str, share: float) -> float:
    """The threshold that guarantees a precision, or a coverage."""
    model, guarantees = classifier.folder or "the model", classifier.guarantees
    if classifier.task is MULTI_LABEL:
        raise ConfigError(f"{option}: is for models with one label a text; {model} is multi-label")
    if guarantees is None:
        what = f"{model} has no results on held-out texts, which guarantees rest on"
        raise ConfigError(f"{option}: {what}; train it again")
    is_coverage = option == "--coverage"
    threshold = (
        guarantees.coverage_threshold(share)
        if is_coverage
        else guarantees.precision_threshold(share)
    )
    if threshold is None:
        highest = guarantees.highest_coverage if is_coverage else guarantees.highest_precision
        instead = (
            f"the highest that can be is {highest:g}"
            if highest
            else "nor can any lower share; label more texts"
        )
        instead += "" if is_coverage else _suggested(classifier)
        held_out = f"its {guarantees.num_texts:,} held-out texts"
        raise ConfigError(f"{option} {share:g}: cannot be guaranteed by {held_out}; {instead}")
    return threshold


def _suggested(classifier: Classifier) -> str:
    """The end of a message with the threshold that the report of the run suggests; empty without one."""
    run = run_of(Path(classifier.folder)) if classifier.folder else None
    try:
        value = read_json(run.eval / "report.json")["suggested_threshold"] if run else None
    except (EncoderClsError, ValueError, KeyError, TypeError):  # no report of this version
        value = None
    return (
        f"; its report suggests --threshold {value:.3f} for 95%, without a guarantee"
        if value
        else ""
    )
