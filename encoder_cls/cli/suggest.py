"""The command `encoder-cls suggest`: texts to label next."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.cli.options import (
    AsJson,
    TextColumns,
    TrainedModel,
    check_ending,
    data_overrides,
)
from encoder_cls.cli.suggestion_table import suggestion_table, suggestions_as_json_lines
from encoder_cls.errors import ConfigError
from encoder_cls.system.terminal import note, print_out

# The first character of a CSV file, by which spreadsheets recognize UTF-8.
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
        Path | None, typer.Option(help="Write the texts to this .csv or .jsonl file.")
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
    if pool in {"", "-"}:
        raise ConfigError(
            "--input: names no file; save the texts as a file, because each suggestion has the "
            "file and line of a text"
        )
    check_ending(output, ".csv", ".jsonl")
    reading = data_overrides(overrides, "delimiter", "encoding", "sheet", "bad_rows")

    from encoder_cls.bulk.input_texts import InputOptions
    from encoder_cls.bulk.output_checks import check_outputs

    outputs = [output] if output else []
    check_outputs(outputs, sources=[pool], model=run, is_printing=output is None)

    from encoder_cls.bulk.suggestions import suggest_from
    from encoder_cls.system.files import write_output

    options = InputOptions(
        source=pool, text_columns=tuple(text_columns or ()), keep_columns=True, **reading
    )
    suggestions, texts, is_multi_label = suggest_from(options, run, number)
    form = texts.csv_form()

    has_json_ending = output is not None and output.suffix.lower() == ".jsonl"
    is_json = as_json or has_json_ending
    if is_json:
        lines = suggestions_as_json_lines(suggestions)
    else:
        is_for_terminal = output is None and sys.stdout.isatty()
        lines = suggestion_table(suggestions, form, is_for_terminal=is_for_terminal)
    content = "".join(lines)

    if output is None:
        print_out(content)
        return

    if not is_json and (form.has_mark or form.is_guarded):
        content = BYTE_ORDER_MARK + content
    write_output(output, content.encode("utf-8", "backslashreplace"))
    note(
        f"wrote {output}: {len(suggestions):,} texts to label; fill in the column label, and add "
        "the file to the training data"
    )
    if is_multi_label:
        note(
            "several labels of a text: late|refund, with data.label_separator='|'; an empty cell "
            "means that a text has none of the labels, so remove rows that you did not look at"
        )
