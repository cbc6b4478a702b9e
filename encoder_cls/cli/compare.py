"""The command `encoder-cls compare`: a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.cli.options import AsJson, print_json
from encoder_cls.system.terminal import WARNING, note, print_out


def compare_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    as_json: AsJson = False,
) -> None:
    """Compare runs by their scores, sizes, training times and different settings."""
    from encoder_cls.run.compare import (
        comparison_table,
        comparison_warnings,
        differing_settings,
        runs_of,
        summarize,
    )

    summaries = []
    for path in runs:
        summaries += [summarize(run) for run in runs_of(path)]

    for warning in comparison_warnings(summaries):
        note(f"{WARNING}{warning}")

    differing = differing_settings(summaries)
    if as_json:
        print_json({"runs": summaries, "differing_settings": differing})
    else:
        table = "\n".join(comparison_table(summaries, differing))
        print_out(f"{table}\n")
