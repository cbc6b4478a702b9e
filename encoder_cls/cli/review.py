"""`encoder-cls review`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.installed import check_training_installed
from encoder_cls.system.terminal import note, print_out, warn_if_output_closed

SHOWN = 10  # rows on standard output


def review_command(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write all doubtful labels to this CSV file; corrected, it is data.corrections of a new run.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of them as JSON.")] = False,
) -> None:
    """List labels that seem to be wrong, the most doubtful first."""
    check_training_installed()

    from encoder_cls.answers.outputs import check_outputs

    if output and output.suffix.lower() != ".csv":
        raise ConfigError(f"--output {output}: a review is a CSV file; let its name end in .csv")
    check_outputs([output] if output else [], model=run, is_printing=True)
    if output is None:
        warn_if_output_closed()

    from encoder_cls.evaluation.files import label_table
    from encoder_cls.runs.review import review_run
    from encoder_cls.system.display import printable, shortened, shown
    from encoder_cls.system.files import to_json, write_output

    found = review_run(run, tell=note)
    if output:
        write_output(output, b"".join(label_table(found.rows)))
    if as_json:
        rows = [row._asdict() for row in found.rows]
        print_out(
            to_json({"estimated_errors": found.estimated_errors, "texts": found.texts, "rows": rows}).decode() + "\n"
        )
    else:
        for row in found.rows[:SHOWN]:
            names = (printable(shortened(name, limit=28)) for name in (row.label, row.suggested))
            text, where = shown(row.text, limit=70), printable(_from_here(row.where))
            print_out(f"{row.score:.3f}  {' -> '.join(names)}  {text}  {where}\n")
    note(
        f"{found.texts:,} labels looked at: for {len(found.rows):,} another is more probable, confidently for "
        f"{found.estimated_errors:,}; look at the first of them until labels are right"
    )
    if output:
        note(f"wrote {output}: correct its column label, then train with --set data.corrections={output}")


def _from_here(where: str) -> str:
    """A place as the current folder has it: a run records absolute ones."""
    return where.removeprefix(f"{Path.cwd()}{os.sep}")
