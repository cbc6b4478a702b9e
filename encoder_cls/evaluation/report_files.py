"""A report in, the files of an `eval` folder out.

To import it is cheap: commands ask for the names of the files before any work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.system.display import json_text
from encoder_cls.system.files import to_json, write_file

if TYPE_CHECKING:
    from encoder_cls.data.dataset import Split
    from encoder_cls.evaluation.report import Report
    from encoder_cls.inference.logits import Logits

REPORT_HTML = "report.html"
REPORT_JSON = "report.json"
PREDICTIONS = "predictions.jsonl"
CONFUSION_MATRIX = "confusion_matrix.png"
REPORT_FILES = (REPORT_HTML, REPORT_JSON, PREDICTIONS, CONFUSION_MATRIX)


def write_report(folder: Path, report: Report, split: Split, logits: Logits, *, run_name: str) -> None:
    """Write `REPORT_FILES`; the plot of the confusion matrix only where the report has one.

    Args:
        folder: where to.
        report: the report.
        split: the examples that were scored.
        logits: what the classifier made of them, (texts, classes).
        run_name: whose classifier it is; equal runs have equal reports, whatever their folders are called.

    Raises:
        EncoderClsError: the disk refuses.
    """
    from encoder_cls.evaluation import plots
    from encoder_cls.evaluation.html import render_report

    html = render_report(f"{run_name}: report on {report.split}", report, split, logits)
    write_file(folder / PREDICTIONS, _prediction_lines(split, logits, report.label_names))
    if report.metrics.confusion_matrix:
        plot = plots.to_png(plots.confusion(report.metrics.confusion_matrix, report.label_names))
        write_file(folder / CONFUSION_MATRIX, plot)
    write_file(folder / REPORT_HTML, html.encode())
    write_file(folder / REPORT_JSON, to_json(report.to_dict()))


def _prediction_lines(split: Split, logits: Logits, label_names: Sequence[str]) -> Iterator[bytes]:
    from encoder_cls.inference.logits import softmax

    for text, where, label, row in zip(split.texts, split.where, split.labels, softmax(logits), strict=True):
        record = {
            "where": where,
            "text": text,
            "label": label_names[label],
            "prediction": label_names[row.argmax()],
            "probability": float(row.max()),
        }
        yield (json_text(record) + "\n").encode()
