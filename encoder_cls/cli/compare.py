"""`encoder-cls compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.system.terminal import note, print_out


def compare_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, of which each has a report.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare runs: scores, size, training time, and the settings in which they differ."""
    from dataclasses import asdict

    from encoder_cls.runs.compare import comparison_table, comparison_warnings, differing_settings, summarize
    from encoder_cls.system.files import to_json

    summaries = [summarize(path) for path in runs]
    for warning in comparison_warnings(summaries):
        note(f"warning: {warning}")
    differing = differing_settings(summaries)
    if as_json:
        print_out(to_json({"runs": [asdict(it) for it in summaries], "differing_settings": differing}).decode() + "\n")
    else:
        print_out("\n".join(comparison_table(summaries, differing)) + "\n")
