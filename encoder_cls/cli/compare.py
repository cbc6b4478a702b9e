"""The command `encoder-cls compare`: a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from encoder_cls.cli.options import AsJson, print_json
from encoder_cls.errors import ConfigError
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import WARNING, note, print_out


def compare_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    is_grouped: Annotated[
        bool,
        typer.Option(
            "--group",
            help="One row for all runs that differ in their seeds alone: means, sample standard "
            "deviations and the number of runs.",
        ),
    ] = False,
    table_format: Annotated[
        Literal["text", "markdown", "csv", "latex"],
        typer.Option("--format", help="The format of the table."),
    ] = "text",
    curves: Annotated[
        Path | None,
        typer.Option(
            help="Also draw the losses and scores of the encoders' trainings by step: "
            "a file .svg, .png or .pdf."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs by their scores, sizes, training times and different settings."""
    if as_json and table_format != "text":
        raise ConfigError(f"--json and --format {table_format}: two formats; name one")

    from encoder_cls.run import comparison_tables
    from encoder_cls.run.compare import (
        comparison_warnings,
        differing_settings,
        runs_of,
        summarize,
    )
    from encoder_cls.run.run_groups import FREE_SETTINGS, each_run, group_by_settings

    paths = []
    for path in runs:
        paths += runs_of(path)
    summaries = [summarize(path) for path in paths]

    if curves:
        _write_curves(curves, paths)

    for warning in comparison_warnings(summaries):
        note(f"{WARNING}{warning}")

    differing = differing_settings(summaries)
    groups = each_run(summaries)
    if is_grouped:
        differing = [key for key in differing if key not in FREE_SETTINGS]
        groups = group_by_settings(summaries)

    if as_json:
        values = {"runs": summaries, "differing_settings": differing}
        if is_grouped:
            values["groups"] = [group.to_dict() for group in groups]
        print_json(values)
        return

    formats = {
        "text": comparison_tables.text_lines,
        "markdown": comparison_tables.markdown_lines,
        "csv": comparison_tables.csv_lines,
        "latex": comparison_tables.latex_lines,
    }
    lines = formats[table_format](groups, differing, has_groups=is_grouped)
    print_out("".join(f"{line}\n" for line in lines))


def _write_curves(file: Path, runs: list[Path]) -> None:
    """Draw the curves of runs into a file, after checking its name."""
    check_training_installed()

    from encoder_cls.bulk.output_checks import check_outputs
    from encoder_cls.run.curves import check_picture, write_curves

    check_picture(file, option="--curves")
    for run in runs:
        check_outputs([file], model=run)
    write_curves(file, runs)
    note(f"wrote {file}")
