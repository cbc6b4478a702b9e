"""`encoder-cls eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.cli.options import reading_settings
from encoder_cls.errors import ConfigError
from encoder_cls.system.installed import check_training_installed
from encoder_cls.system.terminal import note, print_out, warn_if_output_closed


def eval_command(
    run: Annotated[Path, typer.Argument(help="A run or model folder.", show_default=False)],
    data: Annotated[
        str | None,
        typer.Option(
            help="Labelled file to score. Default: the run's test split, else its validation split.", show_default=False
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Another run or model folder, compared on the same texts by a paired test.", show_default=False
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="data.delimiter, data.encoding, data.bad_rows or data.label_separator=... of --data. Repeatable. "
            "Default: as in training.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the report as JSON to this file.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write the report with its page, predictions and pictures into this folder. Default without --data: "
            "the run's eval folder.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score a trained classifier, per class and against a linear model."""
    # This function is long since Typer takes its parameters for the options.
    check_training_installed()

    from encoder_cls.answers.outputs import check_outputs
    from encoder_cls.evaluation import REPORT_FILES

    if data == "":
        raise ConfigError("--data: names no file")
    if overrides and data is None:
        raise ConfigError("--set says how --data is read; the run's own data is read as in training")
    settings = reading_settings(overrides or (), known=("delimiter", "encoding", "bad_rows", "label_separator"))
    files = [report / name for name in REPORT_FILES] if report else []
    outputs = [output, *files] if output else files
    check_outputs(outputs, sources=[data] if data else [], model=run, is_printing=True)
    if against:
        check_outputs(outputs, model=against)
    if output is None:
        warn_if_output_closed()

    from encoder_cls.evaluation.sections import report_text
    from encoder_cls.runs.evaluate import evaluate_run
    from encoder_cls.system.files import to_json, write_output

    found = evaluate_run(run, data=data, reading=settings, folder=report, against=against, tell=note)
    if output:
        write_output(output, to_json(found.to_dict()))
        note(f"wrote {output}")
    print_out((to_json(found.to_dict()).decode() if as_json else report_text(found)) + "\n")
