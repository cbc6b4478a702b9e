"""Write the files of a report: its page, JSON, predictions, picture and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path

from encoder_cls.config.schema import DataConfig
from encoder_cls.evaluation import file_names, matplotlib_figures
from encoder_cls.evaluation.changes_since_base import ChangesSinceBase
from encoder_cls.evaluation.label_tables import file_and_line, label_tables
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_page import render_report
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.metrics.classification import SingleLabelMetrics
from encoder_cls.system.csv_cells import csv_table, guarded
from encoder_cls.system.files import reporting_os_errors, to_json, write_file
from encoder_cls.system.json_values import json_text
from encoder_cls.system.libraries import is_installed


def write_report(
    folder: Path,
    report: Report,
    *,
    data: DataConfig,
    run_name: str,
    config_yaml: str,
    with_picture: bool = True,
) -> list[str]:
    """Write the files of a report into a folder, and return their names.

    Other files of an earlier report are removed; an `EncoderClsError` says that one cannot be.

    `data` says how the texts were read. Empty `config_yaml` is left out; the picture needs
    matplotlib.
    """
    evaluation = report.evaluation
    predictions = evaluation.predictions
    doubtful_rows = predictions.label_rows(evaluation.doubtful_labels, data.label_separator)
    mistake_rows = predictions.label_rows(predictions.mistakes, data.label_separator)
    doubtful, mistakes = label_tables(doubtful_rows, mistake_rows, data=data)

    # The title does not name the folder, so that the reports of equal runs are equal.
    title = f"{run_name}: report on {evaluation.split_name}"
    page = render_report(title, report, config_yaml=config_yaml, written=date.today())

    picture = None
    if with_picture:
        picture = _confusion_picture(evaluation)

    contents: dict[str, bytes | Iterable[bytes] | None] = {
        file_names.PREDICTIONS: _prediction_lines(predictions),
        file_names.CONFUSION_MATRIX: picture,
        file_names.DOUBTFUL_LABELS: doubtful,
        file_names.CHANGED_PREDICTIONS: _changed_predictions(report.run_facts.changes_since_base),
        file_names.MISTAKES: mistakes,
        file_names.REPORT_HTML: page.encode(),
        file_names.REPORT_JSON: to_json(report.to_dict()),
    }
    for name, content in contents.items():
        path = folder / name
        if content is None:
            with reporting_os_errors(path, "remove"):
                path.unlink(missing_ok=True)
        else:
            write_file(path, content)

    return [name for name in file_names.REPORT_FILES if contents[name] is not None]


def _prediction_lines(predictions: SplitPredictions) -> Iterator[bytes]:
    for record in predictions.records():
        yield f"{json_text(record)}\n".encode()


def _confusion_picture(evaluation: SplitEvaluation) -> bytes | None:
    if not isinstance(evaluation.metrics, SingleLabelMetrics) or not is_installed("matplotlib"):
        return None
    matrix = evaluation.metrics.confusion_matrix
    if matrix is None:
        return None
    return matplotlib_figures.to_png(
        matplotlib_figures.confusion_figure(matrix, evaluation.label_names)
    )


CHANGED_COLUMNS = ("file", "line", "text", "label", "before", "now")


def _changed_predictions(changes_since_base: ChangesSinceBase | None) -> Iterator[bytes] | None:
    if changes_since_base is None:
        return None

    rows = []
    for prediction in changes_since_base.changed:
        file, line = file_and_line(prediction.where)
        fields = (file, line, prediction.text, prediction.label, prediction.before, prediction.now)
        rows.append([guarded(field) for field in fields])
    return csv_table(CHANGED_COLUMNS, rows)
