"""Write the files of a report: page, JSON, predictions, picture and tables for spreadsheets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path

from encoder_cls import evaluation
from encoder_cls.data.corrections import COLUMNS
from encoder_cls.evaluation import tensorboard_images as plots
from encoder_cls.evaluation.answers import Answered, LabelRow
from encoder_cls.evaluation.page import render_report
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.scores import ChangedAnswer
from encoder_cls.system.display import csv_row, json_text
from encoder_cls.system.files import reporting_os_errors, to_json, write_file

BYTE_ORDER_MARK = "\ufeff"  # by which spreadsheets know UTF-8
CHANGED_COLUMNS = ("file", "line", "text", "label", "before", "now")


def write_report(
    folder: Path, report: Report, answered: Answered, *, run_name: str, config_yaml: str = ""
) -> list[str]:
    """Write the files of a report, and remove those of an earlier one that it does not have; return their names.

    `answered` are the answers that the report is made from; a run is named, not its folder, so that equal runs have
    equal reports.

    Raises:
        EncoderClsError: the disk refuses.
    """
    title = f"{run_name}: report on {report.split}"
    page = render_report(title, report, answered, config_yaml=config_yaml, written=date.today())
    matrix, base = getattr(report.metrics, "confusion_matrix", None), report.base_answers
    contents: dict[str, bytes | Iterable[bytes] | None] = {
        evaluation.PREDICTIONS: (f"{json_text(record)}\n".encode() for record in answered.records()),
        evaluation.CONFUSION_MATRIX: plots.to_png(plots.confusion(matrix, report.label_names)) if matrix else None,
        evaluation.DOUBTFUL_LABELS: label_table(answered.label_rows(report.doubtful_labels)),
        evaluation.CHANGED_ANSWERS: _changed_table(base.changed) if base else None,
        evaluation.MISTAKES: label_table(answered.label_rows(answered.mistakes)),
        evaluation.REPORT_HTML: page.encode(),
        evaluation.REPORT_JSON: to_json(report.to_dict()),
    }
    for name, content in contents.items():
        if content is not None:
            write_file(folder / name, content)
        else:
            with reporting_os_errors(folder / name, "remove"):
                (folder / name).unlink(missing_ok=True)
    return [name for name in evaluation.REPORT_FILES if contents[name] is not None]


def label_table(rows: Iterable[LabelRow]) -> Iterator[bytes]:
    """CSV with the columns of `data.corrections`, the most doubtful rows first."""
    in_order = sorted(rows, key=lambda row: -row.score)
    cells = ((split, *_file_and_line(where), *rest, f"{score:.4f}") for split, where, *rest, score in in_order)
    return _csv_table(COLUMNS, cells)


def _changed_table(answers: Iterable[ChangedAnswer]) -> Iterator[bytes]:
    return _csv_table(CHANGED_COLUMNS, ((*_file_and_line(where), *rest) for where, *rest in answers))


def _csv_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[bytes]:
    """CSV for spreadsheets, line by line."""
    yield f"{BYTE_ORDER_MARK}{csv_row(columns)}\r\n".encode()
    for row in rows:
        yield f"{csv_row(row)}\r\n".encode("utf-8", "backslashreplace")


def _file_and_line(where: str) -> tuple[str, str]:
    """A location as `data/rows` writes it; the line is empty where the file is one row."""
    file, _, line = where.rpartition(":")
    return (file, line) if file and line.isascii() and line.isdigit() else (where, "")
