"""`encoder-cls eval`, `compare` and `review`: what became of finished runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.cli.options import AsJson, TrainedModel, check_ending, check_file_named, print_json, reading_settings
from encoder_cls.system.installed import check_training_installed
from encoder_cls.system.terminal import note, print_out, warn_if_output_closed
from encoder_cls.system.work import showing_work

SHOWN = 10  # doubtful labels on standard output


def eval_command(
    run: TrainedModel,
    data: Annotated[
        str | None,
        typer.Option(
            help="Labelled file to score. Default: the run's test split, else its validation split.",
            callback=check_file_named,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Another run or model folder, compared on the same texts by a paired test."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="data.text_column, label_column, delimiter, encoding, bad_rows, label_separator or fold_labels=... of "
            "--data. Repeatable. Default: as in training.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the report as JSON to this file.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write the report with its page, predictions and pictures into this folder. Default without --data: "
            "the run's eval folder."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a trained classifier, per class and against a linear model."""
    check_training_installed()

    from encoder_cls.answers.outputs import check_outputs
    from encoder_cls.evaluation import REPORT_FILES

    unread = "" if data else "--set says how --data is read; the run's own data is read as in training"
    known = ("text_column", "label_column", "delimiter", "encoding", "bad_rows", "label_separator", "fold_labels")
    settings = reading_settings(overrides or (), known=known, unread=unread)
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

    with showing_work():
        scored = evaluate_run(run, data=data, reading=settings, folder=report, against=against, notify=note)
    if output:
        write_output(output, to_json(scored.to_dict()))
        note(f"wrote {output}")
    if as_json:
        print_json(scored.to_dict())
    else:
        print_out(f"{report_text(scored)}\n")


def compare_command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    as_json: AsJson = False,
) -> None:
    """Compare runs: scores, size, training time, and the settings in which they differ."""
    from dataclasses import asdict

    from encoder_cls.runs.compare import comparison_table, comparison_warnings, differing_settings, runs_of, summarize

    summaries = [summarize(run) for path in runs for run in runs_of(path)]
    for warning in comparison_warnings(summaries):
        note(f"warning: {warning}")
    differing = differing_settings(summaries)
    if as_json:
        print_json({"runs": [asdict(it) for it in summaries], "differing_settings": differing})
    else:
        print_out("\n".join(comparison_table(summaries, differing)) + "\n")


def review_command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write all doubtful labels to this CSV file; corrected, it is data.corrections of a new run."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of them as JSON.")] = False,
) -> None:
    """List labels that seem to be wrong, the most doubtful first."""
    check_training_installed()

    from encoder_cls.answers.outputs import check_outputs

    check_ending(output, ".csv")
    check_outputs([output] if output else [], model=run, is_printing=True)
    if output is None:
        warn_if_output_closed()

    from encoder_cls.evaluation.answered import label_tables
    from encoder_cls.runs.review import review_run
    from encoder_cls.system.display import printable, shortened, shown
    from encoder_cls.system.files import write_output

    reviewed = review_run(run, notify=note)
    if output:
        write_output(output, b"".join(*label_tables(reviewed.rows, data=reviewed.data)))
    if as_json:
        counts = {"estimated_errors": reviewed.estimated_errors, "texts": reviewed.texts}
        print_json({**counts, "rows": [row._asdict() for row in reviewed.rows]})
    else:
        here = f"{Path.cwd()}{os.sep}"  # a run records absolute paths
        for row in reviewed.rows[:SHOWN]:
            names = (printable(shortened(name, limit=28)) for name in (row.label, row.suggested))
            text, where = shown(row.text, limit=70), printable(row.where.removeprefix(here))
            print_out(f"{row.score:.3f}  {' -> '.join(names)}  {text}  {where}\n")
    note(
        f"{reviewed.texts:,} labels looked at: for {len(reviewed.rows):,} another is more probable, confidently for "
        f"{reviewed.estimated_errors:,}; look at the first of them until labels are right"
    )
    if output:
        note(f"wrote {output}: correct its column label, then train with --set data.corrections={output}")
