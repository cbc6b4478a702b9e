"""The request of `predict`: every option, and which of them go together."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_cls.errors import ConfigError

if TYPE_CHECKING:
    from encoder_cls.inference.classifier import Classifier
    from encoder_cls.inference.guarantees import Guarantees

STANDARD_INPUT = "-"
FORMATS = ("text", "jsonl", "tsv", "csv", "html", "parquet")
SLASHES = tuple(filter(None, (os.sep, os.altsep)))
TEXT_ENDINGS = ("txt", "log", "out")  # of files in which lines of text are expected
INSTEAD = dict.fromkeys(("xlsx", "xls", "ods"), "spreadsheets open .csv") | {"json": "lines of JSON are .jsonl"}
# What an answer depends on, besides the text, the model and the engine.
ANSWER_OPTIONS = (
    *("output_format", "text_columns", "keep_columns", "top_k", "threshold", "explained", "delimiter", "encoding"),
    *("bad_rows", "min_precision", "set_threshold"),
)


NO_COLUMNS = "is for files: texts given here, and lines of standard input, have no columns"


class Request(NamedTuple):
    """What `predict` is asked for, by the names of its options.

    Attributes:
        output_format: of the answers; none: by the ending of `output`.
        source: what `--input` names; none: `texts`, or standard input.
        into_folder: whether `output` is a folder in which each file of the input gets one; set by `checked`.
        text_columns: none: as in training; so are `delimiter` and `encoding`.
        keep_columns: whether answers come beside all columns of their rows; none: in CSV of CSV and Excel files.
        threshold: a less probable label is withheld; multi-label, all labels as probable are given, and 0 means the
            thresholds of the model.
        set_threshold: the probability from which classes are in the set of a text; set by `with_guarantees`.
    """

    output_format: str | None = None
    texts: tuple[str, ...] = ()
    source: str | None = None
    output: str | None = None
    into_folder: bool = False
    model: Path | None = None
    text_columns: tuple[str, ...] = ()
    keep_columns: bool | None = None
    top_k: int = 1
    threshold: float | None = None
    min_precision: float | None = None
    coverage: float | None = None
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

    @property
    def reads_files(self) -> bool:
        """Whether texts come from files."""
        return self.source not in {None, STANDARD_INPUT}

    def checked(self) -> Request:
        """Settle source, output and format.

        Raises:
            ConfigError: options that do not go together, or a value that does not exist.
        """
        if self.runner != "local":
            self._check_runner()
            return self
        files = self.reads_files
        reads_stream = not self.texts and not files
        has_two = self.threshold is not None and self.min_precision is not None
        _refuse(
            (has_two, "give --threshold or --min-precision, not both: the one is found for the other"),
            (self.bad_rows not in {"error", "skip"}, f"--bad-rows: {self.bad_rows!r} is neither error nor skip"),
            (self.texts and self.source is not None, "give texts or --input, not both"),
            (self.source == "", "--input: names no file"),
            (self.text_columns and not files, f"--text-column {NO_COLUMNS}"),
            (reads_stream and sys.stdin is None, "standard input is closed; give texts, or --input FILE"),
            (
                reads_stream and self.source is None and sys.stdin and sys.stdin.isatty(),
                'give texts, such as: encoder-cls predict "some text", or --input FILE',
            ),
            ((self.delimiter or self.encoding) and not files, "--set is for files: it says how they are read"),
            (self.output == "", "--output: names no file"),
        )
        output = self.output or ""
        into_folder = output.endswith(SLASHES) or (files and bool(output) and Path(output).is_dir())
        output_format = self.output_format or ("jsonl" if into_folder else _format_by_ending(output))
        where = f"--output {output}"
        _refuse(
            (into_folder and not files, f"{where}: a folder takes the answers to files (--input FILES); name a file"),
            (output_format not in FORMATS, f"--format {output_format}: known formats are {', '.join(FORMATS)}"),
            (into_folder and output_format == "html", f"{where}: a page holds the first texts only; jsonl holds all"),
            (into_folder and self.attention, "--attention: is of a few texts; leave it out, or name a file"),
            (self.keep_columns and not files, f"--keep-columns {NO_COLUMNS}"),
            (
                self.keep_columns and output_format in {"text", "html"},
                f"--keep-columns: {output_format} has no columns; --format csv, tsv, jsonl or parquet has",
            ),
        )
        from encoder_cls.system.files import stream_named

        # Where the output names standard output, answers are printed as they come.
        is_file = bool(output) and (into_folder or stream_named(Path(output)) != 1)
        if output_format == "parquet":
            from encoder_cls.system.installed import check_installed

            _refuse((not is_file, "--format parquet: is not for printing; --output names a file for it"))
            check_installed("pyarrow", needed_by="--format parquet")
        return self._replace(
            source=self.source or (None if self.texts else STANDARD_INPUT),
            output=output if is_file else None,
            into_folder=into_folder,
            output_format=output_format,
            threshold=self.threshold or 0.0,
        )

    def _check_runner(self) -> None:
        others: dict[str, object] = {
            **{"TEXTS": self.texts, "--text-column": self.text_columns, "--set": self.delimiter or self.encoding},
            **{"--format": self.output_format, "--keep-columns": self.keep_columns, "--top-k": self.top_k != 1},
            **{"--threshold": self.threshold, "--min-precision": self.min_precision, "--coverage": self.coverage},
            **{"--batch-tokens": self.batch_tokens, "--explain": self.explained, "--attention": self.attention},
            **{"--bad-rows": self.bad_rows != "error", "--device": self.device != "auto"},
        }
        named = ", ".join(sorted(name for name, value in others.items() if value))
        needed = "needs --input and --output, each a path or URI of a folder of Parquet files"
        _refuse(
            (self.runner != "ray", f"--runner {self.runner}: known runners are local, ray"),
            (not self.source or not self.output, f"--runner ray: {needed}"),
            (named, f"--runner ray: {named}: not with this runner; leave it out"),
        )

    def answer_options(self, classifier: Classifier) -> dict[str, Any]:
        """What an answer depends on, for the record of a part."""
        options = {name: getattr(self, name) for name in ANSWER_OPTIONS}
        return options | {"text_columns": self.text_columns or classifier.text_columns, "engine": self.engine}

    def with_guarantees(self, classifier: Classifier) -> Request:
        """The request with the thresholds by which a classifier guarantees precision and coverage.

        Raises:
            ConfigError: its held-out texts do not support that.
        """
        request = self
        if self.min_precision is not None:
            option, guarantees = f"--min-precision {self.min_precision:g}", _guarantees(classifier, "--min-precision")
            threshold = guarantees.precision_threshold(self.min_precision)
            request = request._replace(threshold=_reached(threshold, option, guarantees.highest_precision, guarantees))
        if self.coverage is not None:
            option, guarantees = f"--coverage {self.coverage:g}", _guarantees(classifier, "--coverage")
            threshold = guarantees.coverage_threshold(self.coverage)
            reached = _reached(threshold, option, guarantees.highest_coverage, guarantees)
            request = request._replace(set_threshold=reached)
        return request


def _refuse(*rules: tuple[object, str]) -> None:
    """Raise the message of the first rule that is broken."""
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


def _guarantees(classifier: Classifier, option: str) -> Guarantees:
    from encoder_cls.inference.task import MULTI_LABEL

    model = classifier.folder or "the model"
    if classifier.task is MULTI_LABEL:
        raise ConfigError(f"{option}: is for models with one label a text; of {model} a text may have several")
    if classifier.guarantees is None:
        raise ConfigError(
            f"{option}: {model} has no results on held-out texts, which guarantees rest on; train it again with this "
            "version, on texts with labels"
        )
    return classifier.guarantees


def _reached(threshold: float | None, asked: str, highest: float, guarantees: Guarantees) -> float:
    if threshold is None:
        instead = f"the highest that can be is {highest:g}" if highest else "nor can anything lower; label more texts"
        raise ConfigError(f"{asked}: cannot be guaranteed by its {guarantees.num_texts:,} held-out texts; {instead}")
    return threshold
