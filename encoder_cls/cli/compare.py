"""The command `encoder-cls compare`: a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.command_options import AsJson, print_json
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import WARNING, note, print_out


def compare_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, or folders of runs; after --group also NAME=PATTERN, a group of the "
            "runs that a pattern such as 'runs/small-*' matches."
        ),
    ],
    is_grouped: Annotated[
        bool,
        typer.Option(
            "--group",
            help="One row for all runs that differ in their seeds alone, or for all of a "
            "NAME=PATTERN: means, sample standard deviations, the number of runs, and the p-value "
            "of the difference from the best row (Welch's t-test over the runs).",
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
        without_links_to_others,
    )
    from encoder_cls.run.run_groups import FREE_SETTINGS, each_run, group_by_settings, named_group

    groups = []
    paths: list[Path] = []
    for argument in runs:
        if is_grouped and "=" in argument and not Path(argument).exists():
            groups.append(named_group(argument))
        else:
            paths += runs_of(Path(argument))
    other_runs = [summarize(path) for path in without_links_to_others(paths)]
    groups += group_by_settings(other_runs) if is_grouped else each_run(other_runs)

    summaries = [run for group in groups for run in group.runs]
    if curves:
        _write_curves(curves, [Path(run["run"]) for run in summaries])

    for warning in comparison_warnings(summaries):
        note(f"{WARNING}{warning}")

    differing = differing_settings(summaries)
    if is_grouped:
        differing = [key for key in differing if key not in FREE_SETTINGS]

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
    check_training_installed()

    from encoder_cls.run.curves import check_picture, write_curves
    from encoder_cls.run.output_checks import check_outputs

    check_picture(file, option="--curves")
    for run in runs:
        check_outputs([file], model=run)
    write_curves(file, runs)
    note(f"wrote {file}")
