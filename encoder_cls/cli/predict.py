"""`encoder-cls predict`: texts in, a line a text printed or written to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from encoder_cls.cli.options import RUNS, Device
from encoder_cls.cli.streams import is_output_a_file, note, print_out, warn_if_output_closed
from encoder_cls.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_cls.cli.output_formats import Format
    from encoder_cls.cli.text_inputs import Input

FORMATS = ("text", "jsonl", "tsv", "csv", "html")
TEXT_ENDINGS = ("txt", "log", "out")  # of files in which lines of text are expected


def predict_command(
    texts: Annotated[list[str] | None, typer.Argument(help="Texts to classify.", show_default=False)] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A run or model folder, or hub:owner/name. Default: the newest finished run.", show_default=False
        ),
    ] = None,
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="Texts: a file (.txt, .ft one a line; .csv, .tsv, .jsonl, .parquet: by column), - for standard input.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file.", show_default=False)] = None,
    text_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--text-column",
            help="The column with the texts. Repeatable. Default: as in training.",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="text, jsonl, tsv, csv or html. Default: by the ending of --output, else text.",
            metavar="FORMAT",
            show_default=False,
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 1,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Withhold the label where its probability is lower.")
    ] = 0.0,
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
) -> None:
    """Classify texts: given here, in a file, or on standard input; one result a line."""
    chosen_format = _format(output_format, output)
    source = _source(texts, input_file, text_columns)

    from encoder_cls.system.files import stream_named

    if output and stream_named(output) == 1:
        output = None  # results come as they are known, and their reader may have seen enough
    folder = model or _newest_finished()
    outputs = [path for path in (output, attention) if path]
    if outputs or is_output_a_file():
        from encoder_cls.cli.outputs import check_outputs

        check_outputs(outputs, sources=[source] if source else [], model=folder, is_printing=output is None)
    if not model:
        note(f"model: {folder} (the newest finished run; --model names another)")
    if output is None:
        warn_if_output_closed()
    if source is None:  # a few texts need no pool of threads, which NumPy would make as it is imported
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.cli.output_formats import attention_html, predict_lines
    from encoder_cls.cli.text_inputs import Input, check_inputs, has_ids, read_inputs
    from encoder_cls.inference.serialization import load_classifier
    from encoder_cls.system.files import write_output

    classifier = load_classifier(folder, device=device, engine=engine)
    chunks: Iterator[list[Input]]
    with_id: bool | None = None
    if source is None:
        chunks = iter([[Input(_as_utf8(text)) for text in texts or ()]])
    else:
        columns = text_columns or classifier.text_columns
        if output:  # which is written in the end, or not at all
            with_id = check_inputs(source, text_columns=columns)
        elif chosen_format in {"tsv", "csv"}:
            with_id = has_ids(source, text_columns=columns)
        chunks = read_inputs(source, text_columns=columns)
    if attention:
        first = next(chunks, [])
        write_output(attention, attention_html(classifier, first).encode("utf-8", "replace"))
        chunks = chain([first] if first else [], chunks)
    lines = predict_lines(
        classifier,
        chunks,
        output_format=chosen_format,
        top_k=top_k,
        threshold=threshold,
        batch_tokens=batch_tokens,
        explained=explained,
        coloured=output is None and sys.stdout.isatty(),
        with_id=with_id,
        warn=note,
    )
    _write_lines(lines, output)


def _newest_finished() -> Path:
    from encoder_cls.tracking.run_dir import newest_finished

    return newest_finished(RUNS).path


def _format(named: str | None, output: Path | None) -> Format:
    """The format that is named, or that the ending of the output means.

    Raises:
        ConfigError: there is no such format.
    """
    if named is not None:
        if named not in FORMATS:
            raise ConfigError(f"--format {named}: known formats are {', '.join(FORMATS[:-1])} and {FORMATS[-1]}")
        return cast("Format", named)
    ending = output.suffix.lower().removeprefix(".") if output else ""
    if ending in FORMATS:
        return cast("Format", ending)
    if ending and ending not in TEXT_ENDINGS:
        note(f"warning: {output}: no format is known by this ending, so lines of text are written; --format names one")
    return "text"


def _source(texts: Sequence[str] | None, named: str | None, text_columns: Sequence[str] | None) -> str | None:
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


def _as_utf8(text: str) -> str:
    """A text of the command line, also where the environment says that it could only be ASCII."""
    if all(character < "\udc80" or character > "\udcff" for character in text):
        return text
    return os.fsencode(text).decode("utf-8", "replace")


def _write_lines(chunks: Iterator[list[str]], output: Path | None) -> None:
    """Print lines as they come, or replace a file with all of them at the end."""
    if output is None:
        for lines in chunks:
            if not print_out("".join(f"{line}\n" for line in lines)):
                return
        return
    from encoder_cls.system.files import write_output

    write_output(output, (f"{line}\n".encode() for lines in chunks for line in lines))
