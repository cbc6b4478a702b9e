"""`encoder-cls eval` and `compare`: scores of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.cli.options import PLACES, AsJson, TrainedModel, print_json, reading_settings
from encoder_cls.errors import ConfigError
from encoder_cls.run.terminal_reporter import TerminalReporter
from encoder_cls.system.machine import check_training_installed
from encoder_cls.system.terminal import note, print_out

READING = (
    "text_column",
    "label_column",
    "delimiter",
    "encoding",
    "bad_rows",
    "label_separator",
    "fold_labels",
)


def eval_command(
    run: TrainedModel,
    data: Annotated[
        str | None,
        typer.Option(
            help="Labelled data to score. Default: the run's test split, else its validation."
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Another run or model folder, compared on the same texts by a paired test."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help=(
                f"data.KEY=VALUE for --data: {', '.join(READING)}. Default: as in training. Or the new place of data "
                f"of the run that has been moved: {', '.join(PLACES)}. Repeatable."
            ),
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the report as JSON to this file.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write page, JSON, predictions and pictures to this folder. Default for own data: RUN/eval."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a trained classifier, per class and against a linear baseline."""
    check_training_installed()
    if data == "":
        raise ConfigError("--data: names no file")

    from encoder_cls.bulk.output_checks import check_outputs
    from encoder_cls.config.yaml import parse_setting
    from encoder_cls.evaluation.files import REPORT_FILES

    written = reading_settings(overrides, *READING, *PLACES)
    moved = {key: place for key, place in written.items() if key in PLACES}
    reading = {
        key: parse_setting(it, source=f"--set data.{key}", keys=["data", key])
        for key, it in written.items()
        if key not in PLACES
    }
    if reading and not data:
        raise ConfigError(
            f"--set data.{next(iter(reading))} is for --data; the run's own data is read as in training"
        )
    outputs = [*([output] if output else []), *(report / name for name in REPORT_FILES if report)]
    check_outputs(outputs, sources=[data] if data else [], model=run, is_printing=True)
    if against:
        check_outputs(outputs, model=against)

    from encoder_cls.evaluation.report_text import full_text
    from encoder_cls.run.evaluate import evaluate_run
    from encoder_cls.system.files import to_json, write_output

    with TerminalReporter() as reporter:
        scored = evaluate_run(
            run,
            data=data,
            reading=reading,
            moved=moved,
            folder=report,
            against=against,
            reporter=reporter,
        )
    if output:
        write_output(output, to_json(scored.to_dict()))
        note(f"wrote {output}")
    if as_json:
        print_json(scored.to_dict())
    else:
        print_out(f"{full_text(scored)}\n")


def compare_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    as_json: AsJson = False,
) -> None:
    """Compare runs by scores, size, training time, and the settings in which they differ."""
    from encoder_cls.run.compare import (
        comparison_table,
        comparison_warnings,
        differing_settings,
        runs_of,
        summarize,
    )

    summaries = [summarize(run) for path in runs for run in runs_of(path)]
    for warning in comparison_warnings(summaries):
        note(f"warning: {warning}")
    differing = differing_settings(summaries)
    if as_json:
        print_json({"runs": summaries, "differing_settings": differing})
    else:
        print_out("\n".join(comparison_table(summaries, differing)) + "\n")
