"""A report in, HTML out, by templates that escape texts and names; `system/html_page` has what is around it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation import plots
from encoder_cls.evaluation.metrics import answers
from encoder_cls.evaluation.report import WANTED_ACCURACY, Report
from encoder_cls.inference.explain import marked
from encoder_cls.inference.logits import Logits, softmax
from encoder_cls.inference.prediction_pages import words_html
from encoder_cls.system.display import markdown_code, replace_unprintable
from encoder_cls.system.html_page import html_page

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST_COUNTED = 1_000_000  # characters of a text whose words are counted


def render_report(title: str, report: Report, split: Split, logits: Logits) -> str:
    """A report, with plots of what it counts.

    Args:
        title: of the HTML.
        report: the report.
        split: the examples that were scored.
        logits: what the classifier made of them, (texts, classes).
    """
    confidence, correct = answers(logits, split.labels)
    num_words = np.array([len(text[:LONGEST_COUNTED].split()) for text in split.texts])
    body = (
        template_environment()
        .get_template("report.html")
        .render(
            title=title,
            report=report,
            metrics=report.metrics,
            wanted=WANTED_ACCURACY,
            matrix=_matrix_rows(report),
            reliability=plots.to_svg(plots.reliability(report.metrics.calibration)),
            curves=plots.to_svg(plots.precision_recall(softmax(logits), split.labels, report.label_names)),
            thresholds=plots.to_svg(plots.thresholds(confidence, correct, report.suggested_threshold)),
            lengths=plots.to_svg(plots.accuracy_by_length(num_words, correct)),
            errors=[(error, Path(error.where).name, marked(error.text, error.words)) for error in report.worst_errors],
        )
    )
    return html_page(title, body)


@cache
def template_environment() -> Environment:
    """Jinja as the templates of this package want it: what is not there is an error, and HTML is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("encoder_cls.evaluation"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=StrictUndefined,
        finalize=_without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": "{:.1%}".format,
        "thousands": "{:,}".format,
        "digits": "{:.4f}".format,
        "interval": lambda interval: "{:.4f} to {:.4f}".format(*interval),
        "words": lambda pieces: Markup(words_html(pieces)),
        "code": markdown_code,
    }
    return environment


def _without_control_characters(value: Any) -> Any:
    """A value in which nothing can steer a terminal, and no surrogate stands alone."""
    from markupsafe import Markup

    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return replace_unprintable(value, keep="\n\t")


def _matrix_rows(report: Report) -> list[tuple[str, list[int], list[float]]]:
    """Of each label its name, its counts by prediction, and these as parts of all; none of too many classes."""
    if report.metrics.confusion_matrix is None:
        return []
    matrix = np.array(report.metrics.confusion_matrix)
    shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
    return list(zip(report.label_names, matrix.tolist(), shares.tolist(), strict=True))
