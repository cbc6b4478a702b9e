"""The files of an `eval` folder.

Importing it is cheap: commands ask for the names of the files before any work.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.system.display import json_text
from encoder_cls.system.files import reporting_os_errors, to_json, write_file

if TYPE_CHECKING:
    from encoder_cls.evaluation.answers import Answered
    from encoder_cls.evaluation.report import Report

REPORT_HTML = "report.html"
REPORT_JSON = "report.json"
PREDICTIONS = "predictions.jsonl"
CONFUSION_MATRIX = "confusion_matrix.png"
MISTAKES = "mistakes.csv"
DOUBTFUL_LABELS = "doubtful_labels.csv"
CHANGED_ANSWERS = "changed_answers.csv"
REPORT_FILES = (
    REPORT_HTML,
    REPORT_JSON,
    PREDICTIONS,
    CONFUSION_MATRIX,
    MISTAKES,
    DOUBTFUL_LABELS,
    CHANGED_ANSWERS,
)
CHANGED_COLUMNS = ("file", "line", "text", "label", "before", "now")


def write_report(folder: Path, report: Report, answered: Answered, *, run_name: str, config_yaml: str = "") -> None:
    """Write `REPORT_FILES`, and remove those of an earlier report that this one does not have.

    `answered` are the answers that the report is made from; a run is named, not its folder, so that equal runs have
    equal reports.

    Raises:
        EncoderClsError: the disk refuses.
    """
    from datetime import date

    from encoder_cls.evaluation import plots
    from encoder_cls.evaluation.labels import csv_table, file_and_line, label_table
    from encoder_cls.evaluation.page import render_report

    title = f"{run_name}: report on {report.split}"
    matrix, base = getattr(report.metrics, "confusion_matrix", None), report.base_answers
    changed = (
        (*file_and_line(it.where), it.text, it.label, it.before, it.now) for it in (base.changed if base else ())
    )
    contents: dict[str, bytes | Iterable[bytes] | None] = {
        PREDICTIONS: (f"{json_text(record)}\n".encode() for record in answered.records()),
        CONFUSION_MATRIX: plots.to_png(plots.confusion(matrix, report.label_names)) if matrix else None,
        DOUBTFUL_LABELS: label_table(answered.label_rows(report.doubtful_labels)),
        CHANGED_ANSWERS: csv_table(CHANGED_COLUMNS, changed) if base else None,
        MISTAKES: label_table(answered.label_rows(answered.mistakes)),
        REPORT_HTML: render_report(title, report, answered, config_yaml=config_yaml, written=date.today()).encode(),
        REPORT_JSON: to_json(report.to_dict()),
    }
    for name, content in contents.items():
        if content is not None:
            write_file(folder / name, content)
        else:
            with reporting_os_errors(folder / name, "remove"):
                (folder / name).unlink(missing_ok=True)
