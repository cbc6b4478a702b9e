"""Pictures by matplotlib: confusion matrices of any size, and of any names."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.image import imread
from support.programs import TIME_LIMIT

from encoder_cls.evaluation import matplotlib_figures
from encoder_cls.metrics.classification import CalibrationBins

# The darkest colour of correct predictions.
DARK_BLUE = [8, 48, 107]
# The darkest colour of wrong predictions.
DARK_ORANGE = [127, 39, 4]


@pytest.mark.parametrize(
    "names",
    [
        ["a"],
        ["$x^2$", "5$", "a$_{$c", "\\$ \\frac{", "_{^", ""],
        ["küche", "Ελλάδα", "привет", "x" * 500, "a\x1b\nb"],
        ["天気", "😀"],
    ],
    ids=["one class", "formulas", "not ASCII", "not in the font"],
)
def test_a_confusion_matrix_of_any_classes_is_drawn(names):
    """There is no warning (which pytest makes an error), and PNG and pixels are the same."""
    figure = matplotlib_figures.confusion_figure(np.eye(len(names), dtype=int).tolist(), names)

    pixels = matplotlib_figures.to_pixels(figure)
    height, width, channels = pixels.shape
    assert channels == 3
    assert 150 <= height == width <= 1300

    png = imread(io.BytesIO(matplotlib_figures.to_png(figure)))
    assert np.allclose((255 * png[:, :, :3]).round(), pixels)


@pytest.mark.parametrize("num_classes", [2, 100])
def test_every_class_is_named_inside_the_confusion_matrix(num_classes):
    """It is on both axes, in letters that can be read, and touches no other name."""
    names = [f"card_payment_wrong_rate_{number}" for number in range(num_classes)]

    figure = matplotlib_figures.confusion_figure(np.eye(num_classes, dtype=int).tolist(), names)
    figure.draw_without_rendering()
    (axes,) = figure.axes

    columns = [(box.x0, box.x1) for box in boxes_of(axes.get_xticklabels())]
    rows = [(box.y0, box.y1) for box in boxes_of(axes.get_yticklabels())]
    for extents in (columns, rows):
        assert len(extents) == num_classes
        for (_, end), (start, _) in itertools.pairwise(sorted(extents)):
            assert end <= start + 2


def boxes_of(labels) -> list:
    """The boxes of names, in pixels, each of which is inside the image and can be read."""
    boxes = []
    for label in labels:
        box = label.get_window_extent()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert label.get_fontsize() * matplotlib_figures.DPI / 72 >= 8
        boxes.append(box)
    return boxes


def test_right_predictions_are_blue():
    figure = matplotlib_figures.confusion_figure([[5, 0], [0, 0]], ["a", "b"])
    assert is_colour(matplotlib_figures.to_pixels(figure), DARK_BLUE).any()


def test_a_row_of_the_confusion_matrix_is_a_label():
    """Texts of the first class, all taken for the second, are at the top right, and orange."""
    figure = matplotlib_figures.confusion_figure([[0, 5], [0, 0]], ["a", "b"])
    pixels = matplotlib_figures.to_pixels(figure)
    assert not is_colour(pixels, DARK_BLUE).any()

    rows, columns = np.nonzero(is_colour(pixels, DARK_ORANGE))
    assert len(rows) > 5000
    assert rows.max() < 0.5 * len(pixels) < columns.min()


def is_colour(pixels: np.ndarray, colour: list[int]) -> np.ndarray:
    """Whether each pixel has this colour."""
    return (pixels == colour).all(axis=-1)


@pytest.mark.parametrize(("count", "is_shown"), [(7, True), (12345, False)])
def test_numbers_stay_in_their_cells(count, is_shown):
    """A number that does not fit is not shown."""
    matrix = (count * np.eye(20, dtype=int)).tolist()

    figure = matplotlib_figures.confusion_figure(matrix, [""] * 20)
    figure.draw_without_rendering()

    (axes,) = figure.axes
    num_shown = 0
    if is_shown:
        num_shown = 20
    assert len(axes.texts) == num_shown

    cell = axes.get_window_extent().width / 20
    for number, text in enumerate(axes.texts):
        box = text.get_window_extent()
        left, bottom = axes.transData.transform((number - 0.5, number + 0.5))
        assert left <= box.x0 < box.x1 <= left + cell
        assert bottom <= box.y0 < box.y1 <= bottom + cell


def test_a_letter_is_written_with_a_font_that_has_it(monkeypatch):
    """Beside the usual font there are only those that are needed, and can be read."""
    assert matplotlib_figures.fonts_for(["küche", "привет"]) == ["DejaVu Sans"]

    stix = Path(mpl.get_data_path(), "fonts", "ttf", "STIXGeneral.ttf")
    installed = [
        SimpleNamespace(name="none", fname="no such file"),
        SimpleNamespace(name="STIX", fname=str(stix)),
    ]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", installed)
    assert matplotlib_figures.fonts_for(["\N{COMBINING ENCLOSING CIRCLE}"]) == [
        "DejaVu Sans",
        "STIX",
    ]


def test_the_reliability_figure_has_a_point_for_each_bin_with_texts():
    confidence = np.array([0.5] * 2 + [0.95] * 50)
    correct = np.array([True, False] + [True] * 50)

    figure = matplotlib_figures.reliability_figure(CalibrationBins.of(confidence, correct))

    _, line = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[0.5, 0.5], [pytest.approx(0.95), 1.0]]


@pytest.mark.parametrize(
    "drawing",
    [
        "matplotlib_figures.to_png("
        "matplotlib_figures.confusion_figure([[1, 0], [0, 1]], ['a', 'b']))",
        pytest.param("matplotlib_figures.fonts_for(['a'])", marks=pytest.mark.slow),
    ],
)
def test_pictures_need_no_backend(drawing, monkeypatch):
    """A notebook names its own backend to the programs that it starts, which may lack it."""
    monkeypatch.setenv("MPLBACKEND", "no_such_backend")
    imports = "import numpy; from encoder_cls.evaluation import matplotlib_figures"
    code = f"{imports}; {drawing}"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIME_LIMIT)


def test_a_backend_of_the_caller_stays(monkeypatch):
    """A notebook that trains can still show its own figures."""
    monkeypatch.setenv("MPLBACKEND", "svg")
    code = (
        "import os; from encoder_cls.evaluation import matplotlib_figures\n"
        "matplotlib_figures.fonts_for(['a'])\n"
        "import matplotlib; print(matplotlib.get_backend(), os.environ['MPLBACKEND'])"
    )

    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIME_LIMIT, check=True
    )

    assert process.stdout.split() == ["svg", "svg"]
