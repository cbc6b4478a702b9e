"""`encoder-cls predict`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from encoder_cls.cli.options import bad_rows_named, reading_settings
from encoder_cls.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_cls.answers.request import Format


import math
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.cli.options import RUNS, Device
from encoder_cls.system.terminal import is_output_a_file, note, print_out, warn_if_output_closed

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_cls.answers.files import AnsweredSource
    from encoder_cls.answers.inputs import Input
    from encoder_cls.answers.parts import Part
    from encoder_cls.answers.request import Format
    from encoder_cls.inference.classifier import Classifier
    from encoder_cls.tracking.run_dir import RunDir

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
    from encoder_cls.answers.parquet import check_pyarrow

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


def _number(value: float | None) -> float | None:
    if value is not None and math.isnan(value):  # which no limit refuses
        raise typer.BadParameter("nan is not in the range 0<=x<=1.")
    return value


_probability = partial(typer.Option, min=0, max=1, show_default=False, callback=_number)


def predict_command(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to classify.", show_default=False)] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A run or model folder, or hub:owner/name. Default: the newest run with a model.", show_default=False
        ),
    ] = None,
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="Texts: a file (.txt, .ft one a line; .csv, .tsv, .xlsx, .json, .jsonl, .parquet: by column), - for "
            "standard input.",
            show_default=False,
        ),
    ] = None,
    output_named: Annotated[
        str | None,
        typer.Option(
            "--output",
            help="Write to this file, or into a FOLDER/ one file for each file of --input; run again, it goes on.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    text_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--text-column",
            help="The column with the texts. Repeatable. Default: as in training.",
            show_default=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="data.delimiter=... or data.encoding=... of --input. Repeatable. Default: as in training.",
            show_default=False,
        ),
    ] = None,
    bad_rows: Annotated[
        str, typer.Option(help="error or skip: what is done with rows that cannot be read.", metavar="WHAT")
    ] = "error",
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="text, jsonl, tsv, csv, html, parquet. Default: by the ending of --output, else text; FOLDER/: jsonl.",
            metavar="FORMAT",
            show_default=False,
        ),
    ] = None,
    keep_columns: Annotated[
        bool | None,
        typer.Option(
            "--keep-columns/--no-keep-columns",
            help="Put the answer beside the columns of the input. Default: in CSV of CSV files.",
            show_default=False,
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 1,
    threshold: Annotated[
        float | None,
        _probability(help="Withhold the label where its probability is lower; multi-label: one for all labels."),
    ] = None,
    min_precision: Annotated[
        float | None,
        _probability(help="Withhold labels so that of the others so many are right, as held-out texts promise."),
    ] = None,
    coverage: Annotated[
        float | None,
        _probability(help="Name a set of classes that so often has the right one, as held-out texts promise."),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="The most tokens in a batch. Default: what the device is fast with.", show_default=False
        ),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Show which words spoke for the class, and which against it.")
    ] = False,
    attention: Annotated[
        Path | None,
        typer.Option(help="Write a page of the first texts' attention maps to this file.", show_default=False),
    ] = None,
    device: Device = "auto",
    engine: Annotated[
        str, typer.Option(help="auto, numpy or torch: by what the encoder is computed.", metavar="ENGINE")
    ] = "auto",
    runner: Annotated[
        str,
        typer.Option(
            help="local, or ray: the workers of a Ray answer the Parquet files of --input, a path or URI.",
            metavar="RUNNER",
        ),
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="How many workers --runner ray has.")] = 2,
) -> None:
    """Classify texts: given here, in a file, or on standard input; one result a line."""
    # This function is long since Typer takes its parameters for the options.
    if runner != "local":
        others: dict[str, object] = {
            **{"TEXTS": texts, "--text-column": text_columns, "--set": overrides, "--format": output_format},
            **{"--keep-columns": keep_columns, "--top-k": top_k - 1, "--threshold": threshold},
            **{"--min-precision": min_precision, "--coverage": coverage, "--batch-tokens": batch_tokens},
            **{"--explain": explained, "--attention": attention, "--bad-rows": bad_rows != "error"},
            "--device": device != "auto",
        }
        check_runner(runner, input_file, output_named, {name for name, value in others.items() if value})
        _answer_by_ray(str(input_file), str(output_named), model, engine=engine, workers=workers)
        return
    if threshold is not None and min_precision is not None:
        raise ConfigError("give --threshold or --min-precision, not both: the one is found for the other")
    source = source_of(texts, input_file, text_columns)
    reading = reading_of(overrides or (), bad_rows, source)
    output, into_folder = output_of(output_named, source)
    chosen_format: Format = "jsonl" if into_folder and output_format is None else format_of(output_format, output)
    if keep_columns:
        check_keep_columns(chosen_format, source)

    from encoder_cls.system.files import stream_named

    if output and not into_folder and stream_named(output) == 1:
        output = None  # results come as they are known, and their reader may have seen enough
    if chosen_format == "parquet":
        check_parquet(output)
    newest = None if model else _newest_run()
    folder = newest.path if newest else model
    assert folder
    parts: list[Part] = []
    if into_folder and source and output:
        from encoder_cls.answers.parts import new_parts

        parts = new_parts(source, output, chosen_format, attention=attention, model=folder)
    else:
        _check_outputs(output, attention, source, folder)
    if newest:
        _note_newest(newest)
    if output is None:
        warn_if_output_closed()
    if source is None:  # a few texts need no pool of threads, which NumPy would make as it is imported
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.answers.files import AnsweredSource, expect_files
    from encoder_cls.answers.request import Request, with_promises
    from encoder_cls.inference.folder import load_classifier

    request = Request(
        output_format=chosen_format,
        text_columns=tuple(text_columns or ()),
        keep_columns=keep_columns,
        top_k=top_k,
        threshold=threshold or 0.0,
        batch_tokens=batch_tokens,
        explained=explained,
        **reading,
    )
    classifier = load_classifier(folder, device=device, engine=engine)
    request = with_promises(request, classifier, min_precision=min_precision, coverage=coverage)
    if parts and output:
        from encoder_cls.answers.parts import predict_parts

        predict_parts(classifier, parts, output, request, engine=engine)
        return
    answered = AnsweredSource(classifier, source or "-", request)
    expect_files(classifier, answered.files)
    given = None if source else [_as_utf8(text) for text in texts or ()]
    _answer(answered, given, output, None if attention is None else partial(_write_attention, classifier, attention))


def _answer(
    answered: AnsweredSource, given: list[str] | None, output: Path | None, show: Callable[[list[Input]], None] | None
) -> None:
    """Answer texts that are given here, or those of the source, on standard output or in a file.

    Args:
        answered: the source.
        given: the texts, where they are.
        output: the file.
        show: is given the first texts.
    """
    from encoder_cls.answers.inputs import Input
    from encoder_cls.answers.progress import Progress

    on_terminal = output is None and sys.stdout.isatty()
    if given is None and output:  # which is written in the end, or not at all
        with Progress(answered.files, doing="checked") as progress:
            answered.check(progress.done)
    elif given is None:
        answered.look_ahead()
    with Progress(answered.files, doing="classified", bar=not on_terminal) as progress:
        answered.tell = progress.tell
        chunks = answered.read(progress.done) if given is None else iter([[Input(text) for text in given]])
        if show:
            first = next(chunks, [])
            show(first)
            chunks = chain([first] if first else [], chunks)
        if output:
            from encoder_cls.system.files import write_output

            write_output(output, answered.content(chunks, warn=progress.tell))
        else:
            for lines in answered.lines(chunks, warn=progress.tell, on_terminal=on_terminal):
                if not print_out("".join(f"{line}\n" for line in lines)):
                    return
    line = answered.tally.line()
    if line and (given is None or len(given) > 1):  # the answer to a single text says it all
        note(line)


def _write_attention(classifier: Classifier, path: Path, texts: list[Input]) -> None:
    from encoder_cls.answers.formats import attention_html
    from encoder_cls.system.files import write_output

    write_output(path, attention_html(classifier, texts).encode("utf-8", "replace"))


def _check_outputs(output: Path | None, attention: Path | None, source: str | None, model: Path) -> None:
    """Refuse to write where something is read, where files are written at all."""
    outputs = [path for path in (output, attention) if path]
    if outputs or is_output_a_file():
        from encoder_cls.answers.outputs import check_outputs

        check_outputs(outputs, sources=[source] if source else [], model=model, is_printing=output is None)


def _answer_by_ray(input_uri: str, output_uri: str, model: Path | None, *, engine: str, workers: int) -> None:
    from encoder_cls.answers.batches import predict_by_ray

    if model is None:
        newest = _newest_run()
        _note_newest(newest)
        model = newest.path
    rows = predict_by_ray(input_uri, output_uri, model=model, engine=engine, workers=workers, tell=note)
    note(f"{output_uri}: the answers to {rows:,} rows")


def _newest_run() -> RunDir:
    from encoder_cls.tracking.run_dir import newest_with_model

    return newest_with_model(RUNS)


def _note_newest(run: RunDir) -> None:
    unfinished = "" if run.is_finished() else ", which is not finished"
    note(f"model: {run.path} (the newest run{unfinished}; --model names another)")


def _as_utf8(text: str) -> str:
    """A text of the command line, also where the environment says that it could only be ASCII."""
    if all(character < "\udc80" or character > "\udcff" for character in text):
        return text
    return os.fsencode(text).decode("utf-8", "replace")
