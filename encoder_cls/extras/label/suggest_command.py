"""The command `encoder-cls suggest`: texts to label next."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.command_options import (
    EXCEL_ENDING,
    AsJson,
    TextColumns,
    TrainedModel,
    check_ending,
    check_is_new,
    data_overrides,
)
from encoder_cls.system.display import counted, printable, shown
from encoder_cls.system.encodings import encodable
from encoder_cls.system.files import write_output
from encoder_cls.system.label_cells import joined_labels
from encoder_cls.system.terminal import note, print_out

if TYPE_CHECKING:
    from encoder_cls import Classifier

# The first character of a CSV or TSV file, by which spreadsheets recognize UTF-8.
BYTE_ORDER_MARK = "\ufeff"


def suggest_command(
    run: TrainedModel,
    pool: Annotated[
        str,
        typer.Option(
            "--input", help="The unlabelled texts: a file, a folder or a pattern of files."
        ),
    ],
    number: Annotated[int, typer.Option("--n", min=1, help="The number of texts to suggest.")] = 50,
    output: Annotated[
        Path | None, typer.Option(help="Write the texts to this .csv, .tsv, .xlsx or .jsonl file.")
    ] = None,
    text_columns: TextColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="How to read --input: data.delimiter=..., data.encoding=..., data.sheet=... or "
            "data.bad_rows=... Default: separator and encoding as in training.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Suggest texts to label next: texts with uncertain predictions that differ from each other."""
    if pool == "-":
        raise ConfigError(
            "--input: names no file; save the texts as a file, because each suggestion has the "
            "file and line of a text"
        )
    check_ending(output, ".csv", ".tsv", EXCEL_ENDING, ".jsonl")
    reading = data_overrides(overrides, "delimiter", "encoding", "sheet", "bad_rows")

    # Like other commands, --json prints; the ending of --output is the format of the file.
    is_printing = as_json or output is None
    outputs = [output] if output else []

    from encoder_cls import Reading, check_outputs, csv_form, load_classifier

    check_outputs(outputs, sources=[pool], model=run, is_printing=is_printing)
    check_is_new(output)

    from encoder_cls.extras.label.suggestion_table import SuggestionTable
    from encoder_cls.extras.label.suggestions import suggest_from

    classifier = load_classifier(run)
    text_format = classifier.text_format
    columns = text_columns or text_format.columns
    source_reading = Reading(text_format.reading.overridden(**reading))
    suggestions = suggest_from(
        pool, classifier, run, number, text_columns=columns, reading=source_reading
    )
    table = SuggestionTable(suggestions, classifier, columns)
    form = csv_form(pool, columns, source_reading)
    if is_printing and as_json:
        print_out(table.to_json_lines())
    elif is_printing:
        print_out(table.to_csv(form, is_for_terminal=sys.stdout.isatty()))
    if output is None:
        return

    ending = output.suffix.lower()
    if ending == EXCEL_ENDING:
        content = table.to_excel()
    elif ending == ".jsonl":
        content = encodable(table.to_json_lines()).encode()
    else:
        form = form.for_file(output)
        mark = BYTE_ORDER_MARK if form.has_mark or form.is_guarded else ""
        content = encodable(mark + table.to_csv(form)).encode()
    write_output(output, content)

    note(
        f"wrote {output}: {counted(len(table.suggestions), 'text')} to label; fill in the column "
        f"{shown(text_format.label_column)}, then {_next_step(run, output)}"
    )
    if classifier.is_multi_label:
        note(_how_to_write_several_labels(classifier, table.separator))


def _next_step(run: Path, output: Path) -> str:
    is_run = (run / "config.yaml").exists()
    if not is_run:
        return "add the file to the training data"
    return f"train with --from {shlex.quote(str(run))} --set data.train={shlex.quote(str(output))}"


def _how_to_write_several_labels(classifier: Classifier, separator: str) -> str:
    example = joined_labels(classifier.label_names[:2], separator)

    setting = ""
    if classifier.text_format.label_separator is None:
        setting = f" (--set data.label_separator={shlex.quote(separator)})"
    return (
        f"several labels of a text are joined: {printable(example)}{setting}; an empty cell means "
        "that a text has none of the labels, so remove rows that you did not look at"
    )
