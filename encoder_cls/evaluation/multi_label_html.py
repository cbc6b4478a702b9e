"""A report on texts with several labels each in, HTML out, by a template of its own."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np

from encoder_cls.data.split import Split
from encoder_cls.evaluation import charts, verdict
from encoder_cls.evaluation.html import FULL_DATE, template_environment, worst_first
from encoder_cls.evaluation.multi_label_files import multi_label_mistakes
from encoder_cls.evaluation.multi_label_report import MultiLabelReport
from encoder_cls.inference.explain import marked
from encoder_cls.inference.logits import Logits, sigmoid
from encoder_cls.inference.prediction_pages import LEGEND, strongest_words
from encoder_cls.system.html_page import html_page


def render_multi_label_report(
    title: str,
    report: MultiLabelReport,
    split: Split,
    logits: Logits,
    *,
    config_yaml: str = "",
    written: date | None = None,
) -> str:
    """A report, with charts of what it counts; arguments as of `render_report`."""
    rows = verdict.part_rows(report)
    body = (
        template_environment()
        .get_template("multi_label_report.html")
        .render(
            title=title,
            report=report,
            metrics=report.metrics,
            verdict=verdict,
            calibration=verdict.calibration(report),
            parts=charts.parts_with_intervals(rows, "Micro-F1 of the parts") if rows else "",
            classes=worst_first(report.metrics.per_class),
            charts=_charts(report, split, logits),
            num_wrong=len(multi_label_mistakes(report, split, logits)),
            errors=[
                (error, Path(error.where).name, marked(error.text, error.words), strongest_words(error.words))
                for error in report.worst_errors
            ],
            legend=LEGEND,
            config_yaml=config_yaml,
            written=FULL_DATE.format(written) if written else "",
        )
    )
    return html_page(title, body)


def _charts(report: MultiLabelReport, split: Split, logits: Logits) -> list[tuple[str, str, str]]:
    """Of each chart its heading, what is to be known of it, and its SVG."""
    num_classes = logits.shape[1]
    chosen = charts.notable_classes(report.metrics.per_class, charts.MOST_CURVES, num_classes=num_classes)
    occurring = int(np.count_nonzero(split.class_counts(num_classes)))
    drawn = [
        (
            "Right as often as it says?",
            "Of labels that are at all likely. On the dotted line it would be. The paler a dot, the fewer labels it "
            "stands for.",
            charts.reliability(report.metrics.calibration, of="label"),
        )
    ]
    if chosen:
        some = f"Curves of {len(chosen)} of {occurring} labels: the rarest and those with the lowest F1."
        curves = charts.precision_recall(sigmoid(logits), split.labels, chosen, report.label_names)
        drawn.append(("Precision and recall", some if occurring > len(chosen) else "", curves))
    return drawn
