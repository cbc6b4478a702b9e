"""Results in, HTML out: one file that needs no network and runs nothing but its own few lines.

Texts and names are escaped; a content security policy stops what would get through nevertheless.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation import plots
from encoder_cls.evaluation.metrics import answers
from encoder_cls.evaluation.report import WANTED_ACCURACY, Report
from encoder_cls.inference.explain import STRONG, AttentionMaps, marked
from encoder_cls.inference.logits import Logits, softmax
from encoder_cls.system.display import markdown_code, replace_unprintable

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST_COUNTED = 1_000_000  # characters of a text whose words are counted


def render(template: str, **values: Any) -> str:
    """Fill an HTML template of this package."""
    environment = template_environment()
    source, _, _ = environment.loader.get_source(environment, "script.js")  # type: ignore[union-attr]
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return environment.get_template(template).render(script=source, script_sha256=digest, **values)


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
    return render(
        "report.html",
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


def render_explanations(title: str, rows: Sequence[Mapping[str, Any]], *, note: str | None = None) -> str:
    """Predictions with their texts, the words in the colours of what they did.

    Args:
        title: of the HTML.
        rows: each with `text`, `label`, `probability` and `weights` (of `WordWeight`), and perhaps `left_out`: how many
            words have no weight since there are too many.
        note: what is shown where it is not all, such as "the first 10 texts".
    """
    shown = [{"left_out": 0, **row, "pieces": marked(row["text"], row["weights"])} for row in rows]
    return render("explanations.html", title=title, rows=shown, note=note)


def render_attention(title: str, texts: Iterable[tuple[str, AttentionMaps]]) -> str:
    """The attention maps of texts, one for each layer and head.

    Args:
        title: of the HTML.
        texts: each with a line about it; made one at a time, since the maps of a long text are large.
    """
    shown = [
        {
            "line": line,
            "plot": plots.to_svg(plots.attention(maps.tokens, maps.weights)),
            "is_cut": len(maps.tokens) > plots.MOST_TOKENS,
        }
        for line, maps in texts
    ]
    return render("attention.html", title=title, texts=shown, most_tokens=plots.MOST_TOKENS)


@cache
def template_environment() -> Environment:
    """Jinja as the templates of this package want it: what is not there is an error, and HTML is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

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
        "colour": _colour,
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


def _colour(weight: float) -> str:
    """Green for what speaks for the class, red for what speaks against it, the stronger the fuller."""
    strength = min(abs(weight) / STRONG, 1.0)
    return f"rgba({'46,160,67' if weight > 0 else '218,54,51'},{0.75 * strength:.2f})"
