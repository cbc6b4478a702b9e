"""The page of a report, with tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from encoder_cls.classifier.explanation import marked
from encoder_cls.classifier.prediction_page import legend, strongest_html, words_html
from encoder_cls.evaluation import svg_charts
from encoder_cls.evaluation.findings import (
    PAGE_SECTIONS,
    PARTS,
    Kind,
    baseline_note,
    sections_of,
    sentences,
)
from encoder_cls.evaluation.label_tables import file_and_line
from encoder_cls.evaluation.mistakes import Mistake
from encoder_cls.evaluation.plain_findings import MIN_CLASS_TEXTS, percent
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.split_evaluation import SplitEvaluation
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.metrics.classification import MAX_MATRIX_CLASSES, ClassMetrics, Metrics
from encoder_cls.metrics.scores import ALL_SCORES, TOP_K
from encoder_cls.metrics.tasks import MULTI_LABEL
from encoder_cls.system.display import printable
from encoder_cls.system.html_pages import html_page, render
from encoder_cls.system.row_text import plain_text

# The most pairs of confused classes on the first screen: the rest is further down on the page.
MAX_CONFUSED_PAIRS = 3

# With more classes, their tables have a field to find one.
FILTERED_FROM = 50


def render_report(
    title: str, report: Report, *, config_yaml: str = "", written: date | None = None
) -> str:
    """Render a report as one HTML page.

    Empty `config_yaml` and `written` are left out.
    """
    evaluation = report.evaluation
    matrix = None
    is_multi_label = evaluation.metrics.task is MULTI_LABEL
    if not is_multi_label:
        matrix = _matrix(evaluation.predictions)

    written_on = ""
    if written:
        written_on = f"{written.day} {written:%B %Y}"

    body = render(
        "evaluation/templates/report.html",
        title=title,
        written_on=written_on,
        evaluation=evaluation,
        metrics=evaluation.metrics,
        is_multi_label=is_multi_label,
        right=percent(float(evaluation.predictions.are_right.mean())),
        confused=evaluation.metrics.most_confused[:MAX_CONFUSED_PAIRS],
        sentences={kind.name: sentences(report.findings, kind) for kind in Kind},
        next_steps=[step for step in report.findings if step.kind is Kind.NEXT_STEP],
        shown_scores=[score for score in ALL_SCORES if score.key in evaluation.scores],
        scores_of_each=_scores_of_each(report),
        figures=sections_of(report.findings, PAGE_SECTIONS),
        legend=legend(),
        mistakes=[_shown_mistake(mistake) for mistake in evaluation.worst_mistakes],
        num_wrong=len(evaluation.predictions.mistakes),
        classes=_classes(evaluation.metrics),
        classes_note=_classes_note(evaluation.metrics),
        matrix=matrix,
        answered=svg_charts.answered(evaluation.levels) if evaluation.levels else None,
        top_k=TOP_K,
        filtered_from=FILTERED_FROM,
        largest_matrix=MAX_MATRIX_CLASSES,
        trust=_trust_charts(evaluation),
        config_yaml=config_yaml,
    )
    return html_page(title, body)


def _scores_of_each(report: Report) -> dict[str, Mapping[str, Any]]:
    evaluation = report.evaluation
    scores_by_name: dict[str, Mapping[str, Any]] = {"this model": evaluation.scores}
    if evaluation.part_comparison:
        scores_by_name = {name: evaluation.parts[part] for part, name in PARTS.items()}
    if evaluation.new_texts and evaluation.new_texts.num_texts:
        name = next(iter(scores_by_name))
        scores_by_name[f"{name}, new texts alone"] = evaluation.new_texts.scores
    if report.baseline_scores:
        sample = baseline_note(report.baseline_scores)
        scores_by_name[f"TF-IDF baseline (linear SVM{sample})"] = report.baseline_scores
    if report.against:
        scores_by_name[printable(report.against.run)] = report.against.scores

    return scores_by_name


def _classes(metrics: Metrics) -> list[tuple[str, ClassMetrics]]:
    """Sort classes: the lowest F1 first, those with too few texts last."""

    def place(named_scores: tuple[str, ClassMetrics]) -> tuple[bool, bool, float]:
        _, scores = named_scores
        return scores.support == 0, scores.support < MIN_CLASS_TEXTS, scores.f1 or 0

    return sorted(metrics.per_class.items(), key=place)


def _classes_note(metrics: Metrics) -> str:
    supports = [scores.support for scores in metrics.per_class.values()]
    num_few = sum(0 < support < MIN_CLASS_TEXTS for support in supports)
    if num_few in {0, len(supports)}:
        return ""
    reason = "because one mistake more or less would change such scores much"
    if num_few == 1:
        return f"One of them has fewer than {MIN_CLASS_TEXTS} texts and comes last, {reason}."
    return f"{num_few} of them have fewer than {MIN_CLASS_TEXTS} texts and come last, {reason}."


class ShownMistake(NamedTuple):
    """A mistake as the page shows it, with coloured words and those of largest weight."""

    mistake: Mistake
    file: str
    line: str
    text_html: Markup
    strongest_html: Markup


def _shown_mistake(mistake: Mistake) -> ShownMistake:
    file, line = file_and_line(mistake.where)
    return ShownMistake(
        mistake=mistake,
        file=Path(file).name,
        line=line,
        text_html=words_html(marked(mistake.text, mistake.words)),
        strongest_html=strongest_html(mistake.words),
    )


class MatrixCell(NamedTuple):
    """A number of texts, and its share of the row."""

    texts: int
    share: float


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The confusion matrix of classes that occur as a label or as a prediction."""

    names: list[str]
    rows: list[list[MatrixCell]]
    absent: list[str]


def _matrix(predictions: SplitPredictions) -> Matrix | None:
    """The confusion matrix of a single-label task, unless it is too large to read."""
    labels = predictions.labels
    predicted_labels = predictions.predicted_labels
    occurring = np.union1d(labels, predicted_labels)
    if len(occurring) > MAX_MATRIX_CLASSES:
        return None

    # Count the texts of each pair of label and prediction.
    row_numbers = np.searchsorted(occurring, labels)
    column_numbers = np.searchsorted(occurring, predicted_labels)
    counts = np.zeros((len(occurring), len(occurring)), dtype=np.int64)
    np.add.at(counts, (row_numbers, column_numbers), 1)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))

    rows = []
    for row_counts, row_shares in zip(counts.tolist(), shares.tolist(), strict=True):
        cells = zip(row_counts, row_shares, strict=True)
        rows.append([MatrixCell(texts, share) for texts, share in cells])

    label_names = predictions.label_names
    absent = np.setdiff1d(np.arange(len(label_names)), occurring)
    return Matrix(
        names=[label_names[number] for number in occurring],
        rows=rows,
        absent=[label_names[number] for number in absent],
    )


@dataclass(frozen=True, kw_only=True)
class TrustCharts:
    """The charts that show how far predictions can be trusted.

    Attributes:
        thresholds: None if multi-label, as are `fewest_words` and `most_words` of a text.
        curves: None if no class occurs.
        curves_note: which classes have one; empty if all.
        lengths: None if multi-label, or all similar.
    """

    reliability: svg_charts.ReliabilityChart
    thresholds: svg_charts.ThresholdChart | None
    curves: svg_charts.CurvesChart | None
    curves_note: str
    lengths: svg_charts.LengthChart | None
    fewest_words: int | None
    most_words: int | None


def _trust_charts(evaluation: SplitEvaluation) -> TrustCharts:
    metrics = evaluation.metrics
    predictions = evaluation.predictions
    chosen, curves_note = svg_charts.notable_classes(
        metrics.per_class, svg_charts.MAX_CURVES, num_classes=predictions.logits.shape[1]
    )
    curves = None
    if chosen:
        curves = svg_charts.precision_recall(
            predictions.probabilities, predictions.split.labels, chosen, predictions.label_names
        )

    if evaluation.threshold is None:
        return TrustCharts(
            reliability=svg_charts.reliability(metrics.calibration, of="label"),
            thresholds=None,
            curves=curves,
            curves_note=curves_note,
            lengths=None,
            fewest_words=None,
            most_words=None,
        )

    confidence = predictions.probabilities.max(axis=1)
    is_correct = predictions.predicted_labels == predictions.labels
    num_words = np.array(_count_words(predictions.split.texts))
    return TrustCharts(
        reliability=svg_charts.reliability(metrics.calibration),
        thresholds=svg_charts.thresholds(confidence, is_correct, evaluation.threshold.probability),
        curves=curves,
        curves_note=curves_note,
        lengths=svg_charts.accuracy_by_length(num_words, is_correct),
        fewest_words=int(num_words.min()),
        most_words=int(num_words.max()),
    )


# The most characters of a text whose words are counted.
MAX_CHARACTERS = 1_000_000


def _count_words(texts: Sequence[str]) -> list[int]:
    return [len(plain_text(text[:MAX_CHARACTERS]).split()) for text in texts]
