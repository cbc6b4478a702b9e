"""The command `encoder-cls suggest`: texts to label next."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.cli.suggestion_table import (
    added_names,
    separator_of_suggestions,
    suggestion_records,
    suggestion_table,
    suggestions_as_json_lines,
)
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
from encoder_cls.system.label_cells import joined_labels
from encoder_cls.system.terminal import note, print_out

if TYPE_CHECKING:
    from encoder_cls.bulk.suggestions import PoolSuggestions
    from encoder_cls.classifier.classifier import Classifier
    from encoder_cls.system.csv_cells import CsvForm

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

    from encoder_cls.run.output_checks import check_outputs

    # Like other commands, --json prints; the ending of --output is the format of the file.
    is_printing = as_json or output is None
    outputs = [output] if output else []
    check_outputs(outputs, sources=[pool], model=run, is_printing=is_printing)
    check_is_new(output)

    from encoder_cls.bulk.suggestions import suggest_from
    from encoder_cls.metrics.tasks import MULTI_LABEL
    from encoder_cls.system.files import write_output

    found = suggest_from(pool, run, number, text_columns=text_columns, reading=reading)
    if is_printing:
        _print(found, as_json=as_json)
    if output is None:
        return

    ending = output.suffix.lower()
    if ending == EXCEL_ENDING:
        content = _excel_table(found)
    elif ending == ".jsonl":
        content = _encoded(_json_lines(found))
    else:
        content = _encoded(_table_file(found, output))
    write_output(output, content)

    text_format = found.classifier.text_format
    note(
        f"wrote {output}: {counted(len(found.suggestions), 'text')} to label; fill in the column "
        f"{shown(text_format.label_column)}, then {_next_step(run, output)}"
    )
    if found.classifier.task is MULTI_LABEL:
        note(_how_to_write_several_labels(found.classifier))


def _print(found: PoolSuggestions, *, as_json: bool) -> None:
    """Print the suggestions as lines of JSON, or as a table."""
    if as_json:
        print_out(_json_lines(found))
        return
    form = found.texts.csv_form()
    print_out(_table(found, form, is_for_terminal=sys.stdout.isatty()))


def _json_lines(found: PoolSuggestions) -> str:
    """The suggestions as lines of JSON."""
    return "".join(suggestions_as_json_lines(found.suggestions, found.classifier.text_format))


def _table(found: PoolSuggestions, form: CsvForm, *, is_for_terminal: bool) -> str:
    """The suggestions as a table.

    Args:
        found: the suggestions.
        form: the form of the table, such as its separator.
        is_for_terminal: whether a person reads the table in a terminal.
    """
    lines = suggestion_table(
        found.suggestions, found.classifier.text_format, form, is_for_terminal=is_for_terminal
    )
    return "".join(lines)


def _table_file(found: PoolSuggestions, output: Path) -> str:
    """The suggestions as the content of a CSV or TSV file, by the ending of its name."""
    form = found.texts.csv_form().for_file(output)
    table = _table(found, form, is_for_terminal=False)
    if form.has_mark or form.is_guarded:
        return BYTE_ORDER_MARK + table
    return table


def _encoded(content: str) -> bytes:
    """Encode the content of a file; half surrogate pairs, which UTF-8 cannot hold, are escaped."""
    return content.encode("utf-8", "backslashreplace")


def _excel_table(found: PoolSuggestions) -> bytes:
    """The suggestions as the content of an Excel file."""
    from encoder_cls.system.excel_table import excel_table

    text_format = found.classifier.text_format
    columns, records = suggestion_records(found.suggestions, text_format)
    probability = added_names(found.suggestions, text_format)["probability"]
    return excel_table(columns, records, title="suggestions", probability_column=probability)


def _next_step(run: Path, output: Path) -> str:
    """What to do with the labelled texts."""
    is_run = (run / "config.yaml").exists()
    if not is_run:
        return "add the file to the training data"
    return f"train with --from {shlex.quote(str(run))} --set data.train={shlex.quote(str(output))}"


def _how_to_write_several_labels(classifier: Classifier) -> str:
    """Say how several labels, and none, are written into a cell."""
    separator = separator_of_suggestions(classifier.text_format)
    example = joined_labels(classifier.label_names[:2], separator)

    setting = ""
    if classifier.text_format.label_separator is None:
        setting = f" (--set data.label_separator={shlex.quote(separator)})"
    return (
        f"several labels of a text are joined: {printable(example)}{setting}; an empty cell means "
        "that a text has none of the labels, so remove rows that you did not look at"
    )
