"""The charts of a page: they show what was counted, whatever the names."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np

from encoder_cls.evaluation import svg_charts
from encoder_cls.metrics.classification import CalibrationBins, ClassMetrics
from encoder_cls.system.html_pages import macro

HOSTILE = '<script>alert("x")</script>&'


def drawn(name: str, chart: Any) -> str:
    """The HTML of a chart, by the macro with this name."""
    return macro("evaluation/templates/charts.html", name)(chart)


def svg_of(html: str) -> ElementTree.Element:
    """The chart, which is the last SVG and has to be XML."""
    start = html.rindex('<svg class="chart"')
    return ElementTree.fromstring(html[start:])


def titles(elements) -> list[str]:
    """What the pointer shows of each element."""
    return [element.find("title").text for element in elements]


def ends(curve: svg_charts.Curve) -> tuple[list[float], list[float]]:
    """The first and the last point of a curve, as values from 0 to 1."""
    plane = svg_charts.Plane()
    points = []
    for pair in curve.path.removeprefix("M").split():
        left, top = pair.split(",")
        x = (float(left) - plane.x(0)) / (plane.x(1) - plane.x(0))
        y = (float(top) - plane.y(0)) / (plane.y(1) - plane.y(0))
        points.append([round(x, 2), round(y, 2)])
    return points[0], points[-1]


def test_a_dot_of_few_texts_is_paler():
    """A dot for each bin that has texts, with its numbers at the pointer."""
    confidence = np.array([0.5] * 2 + [0.95] * 50)
    correct = np.array([True, False] + [True] * 50)

    chart = svg_charts.reliability(CalibrationBins.of(confidence, correct))

    dots = list(svg_of(drawn("reliability", chart)).iter("circle"))
    assert titles(dots) == ["says 0.50, right 0.50: 2 texts", "says 0.95, right 1.00: 50 texts"]
    opacities = [float(dot.attrib["opacity"]) for dot in dots]
    assert opacities[0] < 0.5
    assert opacities[1] == 1


def test_the_threshold_chart_counts_predictions():
    """A threshold of 0 keeps all predictions, one beyond the most confident prediction none."""
    confidence = np.array([0.2, 0.4, 0.6, 0.8])
    correct = np.array([False, True, False, True])

    chart = svg_charts.thresholds(confidence, correct, 0.7)

    right, kept = chart.curves
    assert ends(right) == ([0, 0.5], [0.8, 1])
    assert ends(kept) == ([0, 1], [1, 0])
    assert "suggested: 0.700" in drawn("thresholds", chart)

    without_suggestion = svg_charts.thresholds(confidence, correct, None)
    assert "suggested" not in drawn("thresholds", without_suggestion)


def test_curves_are_named_whatever_the_names():
    """Names are text in a key; the curve of all classes is there only where others are left out."""
    probabilities = np.eye(3)[[0, 1, 2, 0]]
    # The label of the last text has no probability.
    labels = np.array([0, 1, 2, 3])

    chart = svg_charts.precision_recall(
        probabilities, labels, [0, 2], ["_hidden", "unseen", HOSTILE]
    )
    html = drawn("precision_recall", chart)

    names = ["all classes together", "_hidden", "&lt;script&gt;alert(&#34;x&#34;)&lt;/scrip…"]
    assert re.findall("<bdi>(.*?)</bdi>", html) == names
    _, hidden, _ = chart.curves
    assert ends(hidden)[1] == [0, 1]

    chart = svg_charts.precision_recall(probabilities, labels, [0, 1, 2], ["a", "b", "c"])
    assert [curve.name for curve in chart.curves] == ["a", "b", "c"]


def test_the_rarest_and_the_worst_classes_have_curves():
    """Half of them are the rarest; classes without texts or beyond those of training have none."""

    def scores(f1: float, support: int) -> ClassMetrics:
        return ClassMetrics(precision=f1, recall=f1, f1=f1, support=support)

    per_class = {
        "none": scores(0, 0),
        "rare": scores(1, 2),
        "bad": scores(0.1, 50),
        "good": scores(0.9, 50),
        "better": scores(0.95, 50),
        "unseen": scores(0, 50),
    }

    chosen, note = svg_charts.notable_classes(per_class, 2, num_classes=5)

    assert chosen == [1, 2]
    assert note == "Curves of 2 of 4 classes: the rarest and those with the lowest F1."

    assert svg_charts.notable_classes(per_class, 4, num_classes=5) == ([1, 2, 3, 4], "")


def test_accuracy_is_shown_by_length_of_text():
    """Each text is in one bar; texts of one length make no chart."""
    correct = np.array([True, False] * 10)
    chart = svg_charts.accuracy_by_length(np.arange(20), correct)

    bars = list(svg_of(drawn("lengths", chart)).iter("rect"))
    assert titles(bars)[0] == "0–2 words: 66.7% right of 3 texts"
    assert sum(bar.texts for bar in chart.bars) == 20

    assert svg_charts.accuracy_by_length(np.full(20, 7), correct) is None
