"""Charts: drawn from what was counted, whatever the names."""

from __future__ import annotations

import io
import itertools
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.image import imread
from support.programs import TIME_LIMIT

from encoder_cls.evaluation import charts
from encoder_cls.metrics.classification import CalibrationBins

HOSTILE = '<script>alert("x")</script>&'


def svg_of(drawn: str) -> ElementTree.Element:
    """The chart, which is the last SVG and has to be XML."""
    return ElementTree.fromstring(drawn[drawn.rindex('<svg class="chart"') :])


def titles(elements) -> list[str]:
    return [element.find("title").text for element in elements]


def ends(drawn: str, style: str) -> list[list[float]]:
    """The first and the last point of a curve as values from 0 to 1."""
    (path,) = [path for path in svg_of(drawn).iter("path") if path.attrib["class"] == style]
    found = np.array([[float(n) for n in pair.split(",")] for pair in path.attrib["d"][1:].split()])
    left, right, floor, top = (
        charts.LEFT,
        charts.WIDTH - charts.RIGHT,
        charts.HEIGHT - charts.BOTTOM,
        charts.TOP,
    )
    return ((found - (left, floor)) / (right - left, top - floor))[[0, -1]].round(2).tolist()


def test_a_dot_of_few_texts_is_paler():
    """A dot for each bin that holds texts, and its numbers at the pointer."""
    bins = CalibrationBins.of(
        np.array([0.5] * 2 + [0.95] * 50), np.array([True, False] + [True] * 50)
    )
    dots = list(svg_of(charts.reliability(bins)).iter("circle"))
    assert titles(dots) == ["says 0.50, right 0.50: 2 texts", "says 0.95, right 1.00: 50 texts"]
    few, many = (float(dot.attrib["opacity"]) for dot in dots)
    assert few < 0.5 < many == 1
    _, line = charts.reliability_figure(bins).axes[0].lines
    assert line.get_xydata().tolist() == [[0.5, 0.5], [pytest.approx(0.95), 1.0]]


def test_the_threshold_chart_counts_answers():
    """At a threshold of 0 all are answered, beyond the most confident none."""
    confidence, correct = np.array([0.2, 0.4, 0.6, 0.8]), np.array([False, True, False, True])
    drawn = charts.thresholds(confidence, correct, 0.7)
    assert ends(drawn, "c1") == [[0, 0.5], [0.8, 1]]
    assert ends(drawn, "c2") == [[0, 1], [1, 0]]
    assert "suggested: 0.700" in drawn
    assert "suggested" not in charts.thresholds(confidence, correct, None)


def test_curves_are_named_whatever_the_names():
    """In the key, as text; the curve of all classes only where others are left out."""
    probabilities, labels = (
        np.eye(3)[[0, 1, 2, 0]],
        np.array([0, 1, 2, 3]),
    )  # the last has no probability
    drawn = charts.precision_recall(probabilities, labels, [0, 2], ["_hidden", "unseen", HOSTILE])
    names = ["all classes together", "_hidden", "&lt;script&gt;alert(&quot;x&quot;)&lt;/scrip…"]
    assert re.findall("<bdi>(.*?)</bdi>", drawn) == names
    assert "all classes" not in charts.precision_recall(
        probabilities, labels, [0, 1, 2], ["a", "b", "c"]
    )
    assert ends(drawn, "c1")[1] == [0, 1]


def test_texts_of_one_length_make_no_chart():
    correct = np.array([True, False] * 10)
    assert charts.accuracy_by_length(np.full(20, 7), correct) is None
    bars = titles(svg_of(charts.accuracy_by_length(np.arange(20), correct)).iter("rect"))
    assert bars[0] == "0–2 words: 66.7% right of 3 texts"
    assert sum(int(bar.rpartition(" of ")[2].split()[0]) for bar in bars) == 20


def test_parts_are_dots_on_their_intervals():
    """On one scale, the first as the one that counts; where there is no interval there is no line."""
    drawn = charts.parts_with_intervals([("both", 0.9, (0.85, 0.95)), ("linear <b>", 0.8, None)])
    groups = svg_of(drawn).findall("g")
    assert titles(groups) == ["both: 90.0%, 85.0% to 95.0%", "linear <b>: 80.0%"]
    assert [group.find("line") is not None for group in groups] == [True, False]
    both, linear = (float(group.find("circle").attrib["cx"]) for group in groups)
    line = groups[0].find("line").attrib
    assert linear < float(line["x1"]) < both < float(line["x2"])


@pytest.mark.parametrize(
    "names",
    [
        ["a"],
        ["$x^2$", "5$", "a$_{$c", "\\$ \\frac{", "_{^", ""],
        ["küche", "Ελλάδα", "привет", "x" * 500, "a\x1b\nb"],
        ["天気", "😀"],
    ],
    ids=["1", "formulas", "not ASCII", "not in the font"],
)
def test_a_confusion_matrix_of_any_classes_is_drawn(names):
    """Without a warning (which pytest makes an error), the same as PNG and as pixels."""
    figure = charts.confusion_figure(np.eye(len(names), dtype=int).tolist(), names)
    height, width, channels = (pixels := charts.to_pixels(figure)).shape
    assert channels == 3
    assert 150 <= height == width <= 1300
    assert np.allclose((255 * imread(io.BytesIO(charts.to_png(figure)))[:, :, :3]).round(), pixels)


@pytest.mark.parametrize("classes", [2, 100])
def test_every_class_is_named_inside_the_confusion_matrix(classes):
    """On both axes, in letters that can be read, within the image and without touching the next name."""
    names = [f"card_payment_wrong_rate_{number}" for number in range(classes)]
    figure = charts.confusion_figure(np.eye(classes, dtype=int).tolist(), names)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for labels, low, high in (
        (axes.get_xticklabels(), "x0", "x1"),
        (axes.get_yticklabels(), "y0", "y1"),
    ):
        boxes = sorted(
            (label.get_window_extent() for label in labels), key=lambda box: getattr(box, low)
        )
        assert len(boxes) == classes
        assert min(min(box.x0, box.y0) for box in boxes) >= 0
        assert all(
            getattr(one, high) <= getattr(other, low) + 2
            for one, other in itertools.pairwise(boxes)
        )
        assert all(label.get_fontsize() * charts.DPI / 72 >= 8 for label in labels)


def test_a_row_of_the_confusion_matrix_is_a_label():
    """Texts of the first class, all taken for the second, are a dark square at the top right, and orange: wrong."""
    blue, orange = [8, 48, 107], [127, 39, 4]
    pixels = charts.to_pixels(charts.confusion_figure([[0, 5], [0, 0]], ["a", "b"]))
    assert not (pixels == blue).all(axis=-1).any()
    assert (
        (charts.to_pixels(charts.confusion_figure([[5, 0], [0, 0]], ["a", "b"])) == blue)
        .all(axis=-1)
        .any()
    )
    rows, columns = np.nonzero((pixels == orange).all(axis=-1))
    assert len(rows) > 5000
    assert rows.max() < 0.5 * len(pixels) < columns.min()


@pytest.mark.parametrize(("count", "is_shown"), [(7, True), (12345, False)])
def test_numbers_stay_in_their_cells(count, is_shown):
    figure = charts.confusion_figure((count * np.eye(20, dtype=int)).tolist(), [""] * 20)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    cell = axes.get_window_extent().width / 20
    assert len(axes.texts) == (20 if is_shown else 0)
    for number, text in enumerate(axes.texts):
        box = text.get_window_extent()
        left, bottom = axes.transData.transform((number - 0.5, number + 0.5))
        assert left <= box.x0 < box.x1 <= left + cell
        assert bottom <= box.y0 < box.y1 <= bottom + cell


def test_a_letter_is_written_with_a_font_that_has_it(monkeypatch):
    """Beside the usual font only those that are needed, and can be read."""
    stix = Path(mpl.get_data_path(), "fonts", "ttf", "STIXGeneral.ttf")
    installed = [
        SimpleNamespace(name="none", fname="no such file"),
        SimpleNamespace(name="STIX", fname=str(stix)),
    ]
    assert charts.fonts_for(["küche", "привет"]) == ["DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", installed)
    assert charts.fonts_for(["\N{COMBINING ENCLOSING CIRCLE}"]) == ["DejaVu Sans", "STIX"]


@pytest.mark.parametrize(
    "drawing",
    [
        "charts.to_png(charts.confusion_figure([[1, 0], [0, 1]], ['a', 'b']))",
        "charts.parts_with_intervals([('both', 0.9, (0.8, 0.95))])",
        "charts.colour_squares(numpy.arange(2))",
        "charts.fonts_for(['a'])",
    ],
)
def test_pictures_need_no_backend(drawing, monkeypatch):
    """A notebook names its own backend to the programs that it starts, which may lack it."""
    monkeypatch.setenv("MPLBACKEND", "no_such_backend")
    code = f"import numpy; from encoder_cls.evaluation import charts; {drawing}"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIME_LIMIT)


def test_a_backend_of_the_caller_stays(monkeypatch):
    """A notebook that trains can still show its own figures."""
    monkeypatch.setenv("MPLBACKEND", "svg")
    code = (
        "import os; from encoder_cls.evaluation import charts; charts.fonts_for(['a'])\n"
        "import matplotlib; print(matplotlib.get_backend(), os.environ['MPLBACKEND'])"
    )

    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIME_LIMIT, check=True
    )

    assert process.stdout.split() == ["svg", "svg"]
