"""`encoder-cls review` and `suggest`: labels that are probably wrong, and texts to label next."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from encoder_cls.cli.options import (
    PLACES,
    AsJson,
    TextColumns,
    TrainedModel,
    check_ending,
    print_json,
    reading_settings,
)
from encoder_cls.errors import ConfigError
from encoder_cls.run.terminal_reporter import TerminalReporter
from encoder_cls.system.display import cell, csv_row, printable, record_text, shortened, shown
from encoder_cls.system.machine import check_training_installed
from encoder_cls.system.terminal import note, print_out

if TYPE_CHECKING:
    from encoder_cls.bulk.suggestions import Suggestion
    from encoder_cls.data.text_files import CsvForm

SHOWN = 10  # doubtful labels on standard output
ADDED = ("label", "suggested", "probability", "file", "line")  # to the columns of the input
ROW = "row"  # of a spreadsheet, if it is not the line


def review_command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write all to this CSV file; correct it, and train with --set data.corrections=FILE."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help=f"data.KEY=PATH, the new place of data of the run that has been moved: {', '.join(PLACES)}. Repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the labels that are probably wrong, the most doubtful first: ten of them, or all with --json."""
    check_training_installed()

    from encoder_cls.bulk.output_checks import check_outputs

    check_ending(output, ".csv")
    check_outputs([output] if output else [], model=run, is_printing=True)
    moved = reading_settings(overrides, *PLACES)

    from encoder_cls.evaluation.label_tables import label_tables
    from encoder_cls.run.review import review_run
    from encoder_cls.system.files import write_output

    with TerminalReporter() as reporter:
        reviewed = review_run(run, reporter=reporter, moved=moved)
    if output:
        write_output(output, b"".join(*label_tables(reviewed.rows, data=reviewed.data)))
    if as_json:
        counts = {"estimated_errors": reviewed.estimated_errors, "texts": reviewed.texts}
        print_json({**counts, "rows": [row._asdict() for row in reviewed.rows]})
    else:
        here = f"{Path.cwd()}{os.sep}"  # a run records absolute paths
        for row in reviewed.rows[:SHOWN]:
            names = (printable(shortened(name, limit=28)) for name in (row.label, row.suggested))
            text, where = shown(row.text, limit=70), printable(row.where.removeprefix(here))
            print_out(f"{row.score:.3f}  {' -> '.join(names)}  {text}  {where}\n")
    note(
        f"{reviewed.texts:,} labels checked: another one is more probable for {reviewed.more_probable:,}, of which "
        f"{reviewed.estimated_errors:,} seem to be wrong; read them from the top until labels are right"
    )
    if output:
        note(
            f"wrote {output}: correct its column label, then train with --set data.corrections={output}"
        )


def suggest_command(
    run: TrainedModel,
    pool: Annotated[
        str,
        typer.Option(
            "--input", help="Unlabelled texts: a file, folder or pattern, as for predict."
        ),
    ],
    number: Annotated[int, typer.Option("--n", min=1, help="The number of texts to suggest.")] = 50,
    output: Annotated[Path | None, typer.Option(help="Write to this file, .csv or .jsonl.")] = None,
    text_columns: TextColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="data.delimiter, encoding or bad_rows=... of --input. Default: as in training.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Suggest the texts to label next: those that the model is unsure of, unlike each other."""
    if pool in {"", "-"}:
        raise ConfigError(
            "--input: names no file; texts that are suggested are named by file and line"
        )
    check_ending(output, ".csv", ".jsonl")
    settings = reading_settings(overrides, "delimiter", "encoding", "bad_rows")

    from encoder_cls.bulk.output_checks import check_outputs
    from encoder_cls.bulk.request import Request

    check_outputs([output] if output else [], sources=[pool], model=run, is_printing=output is None)

    from encoder_cls.bulk.suggestions import suggest_from
    from encoder_cls.system.files import write_output

    request = Request(source=pool, model=run, text_columns=tuple(text_columns or ()), **settings)
    suggestions, source = suggest_from(request, run, number)
    form = source.csv_form()
    is_json = as_json or (output is not None and output.suffix.lower() == ".jsonl")
    for_terminal = output is None and sys.stdout.isatty()
    lines = _table(suggestions, form, for_terminal=for_terminal)
    if is_json:
        lines = (record_text({"text": it.item.text} | _record(it)) + "\n" for it in suggestions)
    if output is None:
        print_out("".join(lines))
        return
    # By which spreadsheets know UTF-8.
    mark = "" if is_json or not (form.has_mark or form.is_guarded) else "\ufeff"
    write_output(output, (mark + "".join(lines)).encode("utf-8", "backslashreplace"))
    wrote = f"wrote {output}: {len(suggestions):,} texts to label"
    note(f"{wrote}; fill in the column label, and add it to the training data")


def _record(suggestion: Suggestion) -> dict[str, Any]:
    """The columns of the input, without those of an earlier suggestion, and this one with an empty label."""
    where, prediction = suggestion.item.where, suggestion.prediction
    line = where.line if where.line >= 0 else None
    values = (None, prediction.label, prediction.probability, where.file, line)
    kept = {
        name: value
        for name, value in (suggestion.item.record or {}).items()
        if name not in (*ADDED, ROW)
    }
    return (
        kept
        | dict(zip(ADDED, values, strict=True))
        | ({} if where.row == where.line else {ROW: where.row})
    )


def _table(
    suggestions: Sequence[Suggestion], form: CsvForm, *, for_terminal: bool
) -> Iterator[str]:
    records = [it | {"probability": f"{it['probability']:.6f}"} for it in map(_record, suggestions)]
    names = dict.fromkeys(
        name for record in records for name in record if name not in (*ADDED, ROW)
    )
    columns = [*names, *ADDED, *([ROW] if any(ROW in it for it in records) else [])]
    for record in ({name: name for name in columns}, *({ROW: it["line"]} | it for it in records)):
        fields = [cell(record.get(name)) for name in columns]
        fields = [*map(printable, fields)] if for_terminal else fields
        yield (
            csv_row(fields, separator=form.separator, is_guarded=form.is_guarded or for_terminal)
            + "\n"
        )
