"""`encoder-cls suggest`: a run and texts without labels in, those that are worth a label first out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.cli.options import bad_rows_named, reading_settings
from encoder_cls.errors import ConfigError
from encoder_cls.system.terminal import note, print_out, warn_if_output_closed

if TYPE_CHECKING:
    from encoder_cls.answers.progress import Progress
    from encoder_cls.answers.suggestions import PoolText
    from encoder_cls.data.rows import Reading

COLUMNS = ("file", "line", "text", "label", "suggested", "probability")
CHUNK = 2048  # texts classified at once


def suggest_command(
    run: Annotated[Path, typer.Argument(help="A run or model folder.", show_default=False)],
    pool: Annotated[
        str,
        typer.Option(
            "--input", help="Texts without labels: a file, folder or pattern, as for predict.", show_default=False
        ),
    ],
    number: Annotated[int, typer.Option("--n", min=1, help="How many texts to suggest.")] = 50,
    output: Annotated[
        Path | None,
        typer.Option(help="Write to this file: .jsonl, or a table for spreadsheets (.csv).", show_default=False),
    ] = None,
    text_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--text-column", help="The column with the texts. Repeatable. Default: as in training.", show_default=False
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="data.delimiter, data.encoding or data.bad_rows=... of --input. Repeatable. Default: as in training.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of a table.")] = False,
) -> None:
    """Name the texts whose labels would teach the model most: uncertain ones, unlike each other."""
    if pool in {"", "-"}:
        raise ConfigError("--input: names no file; texts that are suggested are named by file and line")
    if output and output.suffix.lower() not in {".csv", ".jsonl"}:
        raise ConfigError(f"--output {output}: no format is known by this ending; there are .csv and .jsonl")
    settings = reading_settings(overrides or (), known=("delimiter", "encoding", "bad_rows"))

    from encoder_cls.answers.outputs import check_outputs

    check_outputs([output] if output else [], sources=[pool], model=run, is_printing=output is None)
    if output is None:
        warn_if_output_closed()

    from encoder_cls.answers.files import expect_files
    from encoder_cls.answers.progress import Progress
    from encoder_cls.answers.suggestions import suggest
    from encoder_cls.data.rows import Reading
    from encoder_cls.data.sources import files_named
    from encoder_cls.inference.folder import load_classifier
    from encoder_cls.inference.task import MULTI_LABEL

    classifier = load_classifier(run)
    if classifier.task is MULTI_LABEL:
        raise ConfigError(f"{run}: suggest is for models with one label a text; of this one a text may have several")
    files = files_named(pool)
    expect_files(classifier, files)
    with Progress(files, doing="classified") as progress:
        reading = Reading(
            delimiter=settings.get("delimiter", classifier.delimiter),
            encoding=settings.get("encoding", classifier.encoding),
            is_sure="encoding" in settings,
            bad_rows=bad_rows_named(settings.get("bad_rows", "error")),
            tell=progress.tell,
        )
        found = suggest(classifier, _pool(pool, text_columns or classifier.text_columns, reading, progress), number)
    for warning in reading.notes.warnings(pool):
        note(f"warning: {warning}")
    if len(found) < number:
        note(f"warning: {pool}: has only {len(found):,} different texts to suggest")
    is_json = as_json or (output is not None and output.suffix.lower() == ".jsonl")
    lines = _json_lines(found) if is_json else _table(found, for_terminal=output is None and sys.stdout.isatty())
    if output:
        from encoder_cls.system.files import write_output

        mark = "" if is_json else "\ufeff"  # by which spreadsheets know UTF-8
        write_output(output, (mark + "".join(lines)).encode("utf-8", "backslashreplace"))
        note(
            f"wrote {output}: {len(found):,} texts to label; fill in the column label, and add it to the training data"
        )
    else:
        print_out("".join(lines))


def _pool(
    source: str, text_columns: Sequence[str], reading: Reading, progress: Progress
) -> Iterator[list[tuple[str, int, str]]]:
    """File, line and text of all rows, in chunks."""
    from encoder_cls.data.readers import read_rows
    from encoder_cls.system.disk_arrays import in_chunks

    rows = read_rows(source, role="train", text_columns=text_columns, label_column=None, reading=reading)
    for chunk in in_chunks(rows, CHUNK):
        yield [(row.where.file, row.where.line, row.text) for row in chunk]
        progress.done(chunk[-1].where, len(chunk))


def _table(found: Sequence[PoolText], *, for_terminal: bool) -> Iterator[str]:
    from encoder_cls.system.display import csv_row, printable

    for fields in (COLUMNS, *(_fields(it) for it in found)):
        yield csv_row(map(printable, fields) if for_terminal else fields) + "\n"


def _fields(suggested: PoolText) -> list[str]:
    """A row, whose label is to be filled in; where the file is one text there is no line."""
    line = str(suggested.line) if suggested.line >= 0 else ""
    prediction = suggested.prediction
    return [suggested.file, line, suggested.text, "", prediction.label or "", f"{prediction.probability:.6f}"]


def _json_lines(found: Sequence[PoolText]) -> Iterator[str]:
    from encoder_cls.system.display import json_text

    for file, line, text, prediction in found:
        record = {
            "file": file,
            "line": line if line >= 0 else None,
            "text": text,
            "label": None,
            "suggested": prediction.label,
            "probability": prediction.probability,
        }
        yield json_text(record) + "\n"
