"""The command `encoder-cls review`: a list of labels that are probably wrong."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from encoder_cls.system.command_options import (
    EXCEL_ENDING,
    SOURCE_KEYS,
    AsJson,
    check_ending,
    check_is_new,
    data_overrides,
    print_json,
)
from encoder_cls.system.display import printable, shortened, shown
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import note, print_out

if TYPE_CHECKING:
    from encoder_cls import LabelRow, Review

MAX_SHOWN = 10
# What stands for the labels of a text that has none.
NO_LABEL = "(no label)"
# The maximum number of characters of a class name in a line.
LONGEST_NAME = 28
# The maximum number of characters of a text in a line.
LONGEST_TEXT = 70


def review_command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Write all of them to this .csv, .tsv or .xlsx file; correct the file, and train "
                "with --set data.corrections=FILE."
            )
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help=(
                "data.KEY=PATH: the new path of data of the run that has been moved. Keys: "
                f"{', '.join(SOURCE_KEYS)}. Repeatable."
            ),
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the labels that are probably wrong, the most doubtful first.

    Prints the first ten; --json and --output give all of them.
    """
    check_training_installed()

    from encoder_cls import check_outputs, review

    check_ending(output, ".csv", ".tsv", EXCEL_ENDING)
    outputs = [output] if output else []
    check_outputs(outputs, model=run, is_printing=True)
    check_is_new(output)
    moved = data_overrides(overrides, *SOURCE_KEYS)

    found = review(run, moved=moved)
    if output:
        found.write(output)
    if as_json:
        _print_as_json(found)
    else:
        for row in found.rows[:MAX_SHOWN]:
            print_out(f"{_line(row, found.data.code_names or {})}\n")

    checked = f"{found.num_texts:,} labels checked: another one is more probable for "
    if found.is_multi_label:
        checked = f"the labels of {found.num_texts:,} texts checked: others are predicted for "
    note(
        f"{checked}{found.num_contradicted:,}; at most about {found.num_estimated_errors:,} are "
        "wrong: read them from the top until labels are right"
    )
    if output:
        note(
            f"wrote {output}: correct its column {shown(found.data.label_column)}, then train "
            f"with --set {shlex.quote(f'data.corrections={output}')}"
        )


def _print_as_json(found: Review) -> None:
    print_json(
        {
            "estimated_errors": found.num_estimated_errors,
            "texts": found.num_texts,
            "rows": [_record(row) for row in found.rows],
        }
    )


def _record(row: LabelRow) -> dict[str, Any]:
    record = row._asdict()
    del record["row"]
    return record


def _line(row: LabelRow, code_names: Mapping[str, str]) -> str:
    label = _label(row.label, code_names)
    suggested = _label(row.suggested, code_names)
    text = shown(row.text, limit=LONGEST_TEXT)

    # Paths in a run are absolute. Show files in the current folder by their relative paths.
    current_folder = f"{Path.cwd()}{os.sep}"
    location = printable(row.where.removeprefix(current_folder))
    return f"{row.score:.3f}  {label} -> {suggested}  {text}  {location}"


def _label(label: str, code_names: Mapping[str, str]) -> str:
    if label in code_names:
        label = f"{label} {code_names[label]}"
    return printable(shortened(label, limit=LONGEST_NAME)) or NO_LABEL
