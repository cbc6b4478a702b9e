"""Charts of the report: what is drawn is what was counted, and what is not drawn is said."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from encoder_cls.evaluation import charts
from encoder_cls.evaluation.charts import (
    accuracy_by_length,
    notable_classes,
    parts_with_intervals,
    precision_recall,
    reliability,
    thresholds,
)
from encoder_cls.evaluation.metrics import ClassMetrics, calibration_bins

HOSTILE = '<script>alert("x")</script>&'


def svg_of(drawn: str) -> ElementTree.Element:
    """The chart, which is the last SVG and has to be XML."""
    return ElementTree.fromstring(drawn[drawn.rindex('<svg class="chart"') :])


def points(drawn: str, style: str) -> np.ndarray:
    """The points of a curve as values from 0 to 1."""
    (path,) = [path for path in svg_of(drawn).iter("path") if path.attrib["class"] == style]
    found = np.array([[float(n) for n in pair.split(",")] for pair in path.attrib["d"][1:].split()])
    plane = charts._Plane()
    origin, far = (plane.x(0), plane.y(0)), (plane.x(1), plane.y(1))
    return (found - origin) / np.subtract(far, origin)


def scores(f1: float, support: int) -> ClassMetrics:
    return ClassMetrics(precision=f1, recall=f1, f1=f1, support=support)


def test_a_dot_of_few_texts_is_paler():
    """A dot for each bin that holds texts, and its numbers at the pointer."""
    confidence, correct = np.array([0.5] * 2 + [0.95] * 50), np.array([True, False] + [True] * 50)
    dots = list(svg_of(reliability(calibration_bins(confidence, correct))).iter("circle"))
    assert [dot.find("title").text for dot in dots] == [
        "says 0.50, right 0.50: 2 texts",
        "says 0.95, right 1.00: 50 texts",
    ]
    few, many = (float(dot.attrib["opacity"]) for dot in dots)
    assert few < 0.5 < many == 1


def test_the_threshold_chart_counts_answers():
    """At a threshold of 0 all are answered, beyond the most confident none."""
    confidence, correct = np.array([0.2, 0.4, 0.6, 0.8]), np.array([False, True, False, True])
    drawn = thresholds(confidence, correct, 0.7)
    right, answered = points(drawn, "c1"), points(drawn, "c2")
    assert right[0] == pytest.approx([0, 0.5], abs=0.01)
    assert right[-1] == pytest.approx([0.8, 1], abs=0.01)
    assert answered[0] == pytest.approx([0, 1], abs=0.01)
    assert answered[-1] == pytest.approx([1, 0], abs=0.01)
    assert "suggested: 0.700" in drawn
    assert "suggested" not in thresholds(confidence, correct, None)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(0.9, 50), (0.8, 50)], [0, 1]),
        ([(0.9, 50), (0.8, 50), (0.7, 50), (0.6, 50), (0.5, 50)], [4, 3, 2, 1]),  # none is rarer than the others
        ([(0.9, 9), (0.8, 50), (0.7, 50), (0.6, 50), (0.5, 0), (0.4, 8), (0.3, 50)], [5, 0, 6, 3]),
    ],
)
def test_the_rarest_and_the_worst_classes_have_curves(found, expected):
    """Not the first; all of few; none that does not occur, or that training never showed."""
    per_class = {str(number): scores(*values) for number, values in enumerate([*found, (0.0, 1)])}
    assert notable_classes(per_class, 4, num_classes=len(found)) == expected


def test_curves_are_named_whatever_the_names():
    """In the key, as text; the curve of all classes only where others are left out."""
    probabilities, labels = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 3])  # the last has no probability
    drawn = precision_recall(probabilities, labels, [0, 2], ["_hidden", "unseen", HOSTILE])
    assert re.findall("<bdi>(.*?)</bdi>", drawn) == [
        "all classes together",
        "_hidden",
        "&lt;script&gt;alert(&quot;x&quot;)&lt;/scrip…",
    ]
    assert "all classes" not in precision_recall(probabilities, labels, [0, 1, 2], ["a", "b", "c"])
    assert points(drawn, "c1")[-1] == pytest.approx([0, 1], abs=0.01)


def test_the_curve_of_many_classes_is_of_a_sample(monkeypatch):
    """Texts times classes are limited; all of them give the same curve as a sample of texts that are all alike."""
    probabilities, labels = np.full((50, 20), 0.05), np.arange(50) % 20
    monkeypatch.setattr(charts, "MOST_DECISIONS", 200)
    drawn = precision_recall(probabilities, labels, [0], [str(number) for number in range(20)])
    assert points(drawn, "c0")[0] == pytest.approx([1, 0.05], abs=0.01)


def test_texts_of_one_length_make_no_chart():
    """A single bar would be a slab that says what the accuracy says."""
    correct = np.array([True, False] * 10)
    assert accuracy_by_length(np.full(20, 7), correct) is None
    drawn = accuracy_by_length(np.arange(20), correct)
    bars = [bar.find("title").text for bar in svg_of(drawn).iter("rect")]
    assert bars[0] == "0–2 words: 66.7% right of 3 texts"
    assert sum(int(bar.rpartition(" of ")[2].split()[0]) for bar in bars) == 20


def test_parts_are_dots_on_their_intervals():
    """On one scale, the first as the one that counts; where there is no interval there is no line."""
    drawn = parts_with_intervals([("both", 0.9, (0.85, 0.95)), ("linear <b>", 0.8, None)])
    groups = svg_of(drawn).findall("g")
    assert [group.find("title").text for group in groups] == ["both: 90.0%, 85.0% to 95.0%", "linear <b>: 80.0%"]
    assert [group.find("line") is not None for group in groups] == [True, False]
    both, linear = (float(group.find("circle").attrib["cx"]) for group in groups)
    line = groups[0].find("line").attrib
    assert linear < float(line["x1"]) < both < float(line["x2"])


@pytest.mark.parametrize(
    ("scores", "ticks"),
    [
        ((0.902, 0.925), ["90%", "91%", "92%", "93%"]),
        ((0.9951, 1.0), ["99.4%", "99.6%", "99.8%", "100.0%"]),
        ((0.0, 0.61), ["0%", "20%", "40%", "60%", "80%"]),
        ((1.0, 1.0), ["99.9%", "100.0%"]),
    ],
)
def test_the_scale_of_parts_begins_where_their_numbers_do(scores, ticks):
    """At the tick below the lowest, and each number is between the first and the last."""
    drawn = svg_of(parts_with_intervals([("both", scores[1], scores), ("linear", scores[0], None)]))
    shown = {text.text: float(text.attrib["x"]) for text in drawn.findall("text")}
    assert [*shown] == ticks
    places = [float(dot.attrib["cx"]) for dot in drawn.iter("circle")]
    assert shown[ticks[0]] <= min(places) <= shown[ticks[1]]
    assert shown[ticks[-2]] <= max(places) <= shown[ticks[-1]]
