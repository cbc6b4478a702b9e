"""The command `encoder-cls eval`: a report on a trained classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from encoder_cls.errors import ConfigError, WorseError
from encoder_cls.system.command_options import (
    SOURCE_KEYS,
    AsJson,
    Quiet,
    TrainedModel,
    data_overrides,
    print_json,
)
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import note, print_out
from encoder_cls.system.terminal_reporter import TerminalReporter

# The keys of `data` that say how to read a file.
READING_KEYS = (
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
            help="Another run or model folder, to compare with on the same texts (paired test)."
        ),
    ] = None,
    fail_if_worse: Annotated[
        bool,
        typer.Option(
            "--fail-if-worse",
            help="End with exit code 5 if the model of --against is surely better: if the 95% "
            "interval of the difference of their accuracies (multi-label: micro-F1) shows it.",
        ),
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help=(
                f"data.KEY=VALUE. How to read --data: {', '.join(READING_KEYS)}; "
                "default: as in training. If the run's own data has been moved, its new path: "
                f"{', '.join(SOURCE_KEYS)}. Repeatable."
            ),
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the report as JSON to this file.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Write an HTML page, JSON, predictions and figures to this folder. "
                "Default for the run's own data: RUN/eval."
            )
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,  # noqa: ARG001 - the callback of the option handles it
) -> None:
    """Score a trained classifier, for each class and beside a linear baseline."""
    check_training_installed()
    if fail_if_worse and against is None:
        raise ConfigError("--fail-if-worse: worse than what? name a run with --against")

    reading, moved = _parsed_overrides(overrides)
    if reading and not data:
        key = next(iter(reading))
        raise ConfigError(
            f"--set data.{key} works only with --data; the run's own data is read as in training"
        )
    _check_outputs(run, data=data, against=against, output=output, report=report)

    from encoder_cls.run.evaluate import evaluate
    from encoder_cls.system.files import to_json, write_output

    with TerminalReporter() as reporter:
        scores = evaluate(
            run,
            data=data,
            reading=reading,
            moved=moved,
            folder=report,
            against=against,
            reporter=reporter,
        )

    if output:
        write_output(output, to_json(scores.to_dict()))
        note(f"wrote {output}")
    if as_json:
        print_json(scores.to_dict())
    else:
        print_out(f"{scores}\n")

    if fail_if_worse and scores.against and scores.against.is_other_better:
        difference, _ = scores.against.sentences()
        raise WorseError(f"{run} is worse: {difference}")


def _parsed_overrides(overrides: list[str] | None) -> tuple[dict[str, Any], dict[str, str]]:
    from encoder_cls.config.loading import parse_setting

    reading: dict[str, Any] = {}
    moved: dict[str, str] = {}
    for key, text in data_overrides(overrides, *READING_KEYS, *SOURCE_KEYS).items():
        if key in SOURCE_KEYS:
            moved[key] = text
        else:
            reading[key] = parse_setting(f"data.{key}", text)
    return reading, moved


def _check_outputs(
    run: Path, *, data: str | None, against: Path | None, output: Path | None, report: Path | None
) -> None:
    from encoder_cls.evaluation.file_names import REPORT_FILES
    from encoder_cls.run.output_checks import check_outputs

    outputs: list[Path] = []
    if output:
        outputs.append(output)
    if report:
        outputs += [report / name for name in REPORT_FILES]

    sources = [data] if data else []
    check_outputs(outputs, sources=sources, model=run, is_printing=True)
    if against:
        check_outputs(outputs, model=against)
