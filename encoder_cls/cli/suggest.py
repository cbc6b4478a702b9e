"""`encoder-cls suggest`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from encoder_cls.cli.options import TextColumns, TrainedModel, check_ending, reading_settings
from encoder_cls.errors import ConfigError
from encoder_cls.system.display import csv_row, json_text, printable
from encoder_cls.system.terminal import note, print_out, warn_if_output_closed

if TYPE_CHECKING:
    from encoder_cls.answers.suggestions import Suggestion

COLUMNS = ("file", "line", "text", "label", "suggested", "probability")


def suggest_command(
    run: TrainedModel,
    pool: Annotated[
        str, typer.Option("--input", help="Texts without labels: a file, folder or pattern, as for predict.")
    ],
    number: Annotated[int, typer.Option("--n", min=1, help="How many texts to suggest.")] = 50,
    output: Annotated[
        Path | None, typer.Option(help="Write to this file: .jsonl, or a table for spreadsheets (.csv).")
    ] = None,
    text_columns: TextColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="data.delimiter, data.encoding or data.bad_rows=... of --input. Repeatable. Default: as in training.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of a table.")] = False,
) -> None:
    """Name the texts whose labels would teach the model most: uncertain ones, unlike each other."""
    if pool in {"", "-"}:
        raise ConfigError("--input: names no file; texts that are suggested are named by file and line")
    check_ending(output, ".csv", ".jsonl")
    settings: dict[str, Any] = reading_settings(overrides or (), known=("delimiter", "encoding", "bad_rows"))

    from encoder_cls.answers.outputs import check_outputs
    from encoder_cls.answers.request import Request

    check_outputs([output] if output else [], sources=[pool], model=run, is_printing=output is None)
    if output is None:
        warn_if_output_closed()

    from encoder_cls.answers.suggestions import suggest_from
    from encoder_cls.system.files import write_output

    request = Request(source=pool, model=run, text_columns=tuple(text_columns or ()), **settings)
    suggestions = suggest_from(request, run, number)
    is_json = as_json or (output is not None and output.suffix.lower() == ".jsonl")
    lines = (
        _json_lines(suggestions)
        if is_json
        else _table(suggestions, for_terminal=output is None and sys.stdout.isatty())
    )
    if output is None:
        print_out("".join(lines))
        return
    mark = "" if is_json else "\ufeff"  # by which spreadsheets know UTF-8
    write_output(output, (mark + "".join(lines)).encode("utf-8", "backslashreplace"))
    done = f"wrote {output}: {len(suggestions):,} texts to label"
    note(f"{done}; fill in the column label, and add it to the training data")


def _values(suggestion: Suggestion) -> tuple[str, int | None, str, None, str | None, float | None]:
    """The values of the columns; the label is to be filled in, and a file of one text has no line."""
    where, prediction = suggestion.item.where, suggestion.prediction
    assert where
    line = where.line if where.line >= 0 else None
    return where.file, line, suggestion.item.text, None, prediction.label, prediction.probability


def _table(suggestions: Sequence[Suggestion], *, for_terminal: bool) -> Iterator[str]:
    yield csv_row(COLUMNS) + "\n"
    for values in map(_values, suggestions):
        fields = [f"{it:.6f}" if isinstance(it, float) else "" if it is None else str(it) for it in values]
        yield csv_row(map(printable, fields) if for_terminal else fields) + "\n"


def _json_lines(suggestions: Sequence[Suggestion]) -> Iterator[str]:
    for suggestion in suggestions:
        yield json_text(dict(zip(COLUMNS, _values(suggestion), strict=True))) + "\n"
