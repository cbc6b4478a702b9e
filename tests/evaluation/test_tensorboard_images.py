"""Plots: what is in them is what they were drawn from."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

from encoder_cls.evaluation.metrics import calibration_bins
from encoder_cls.evaluation.tensorboard_images import (
    DPI,
    SQUARE,
    colour_squares,
    confusion,
    fonts_for,
    reliability,
    to_pixels,
    to_png,
)


def opened(png: bytes) -> np.ndarray:
    """The pixels of an image, (height, width, 3)."""
    return (255 * imread(io.BytesIO(png))[:, :, :3]).round().astype(int)


@pytest.mark.parametrize(
    "names",
    [
        ["a"],
        ["a", "b", "c"],
        [f"class {number}" for number in range(100)],
        ["$x^2$", "5$", "a$_{$c", "\\$ \\frac{", "_{^", ""],
        ["küche", "Ελλάδα", "привет", "x" * 500, "a\x1b\nb"],
        ["天気", "😀"],
    ],
    ids=["1", "3", "100", "formulas", "not ASCII", "not in the font"],
)
def test_a_confusion_matrix_of_any_classes_is_drawn(names):
    """As many as are drawn at most, and any names, without a warning (which pytest makes an error)."""
    figure = confusion(np.eye(len(names), dtype=int).tolist(), names)
    png = to_png(figure)
    height, width, channels = to_pixels(figure).shape
    assert png.startswith(b"\x89PNG")
    assert channels == 3
    assert 150 <= height == width <= 1300
    assert np.allclose(opened(png), to_pixels(figure))


@pytest.mark.parametrize("classes", [2, 11, 100])
def test_every_class_is_named_inside_the_confusion_matrix(classes):
    """On both axes, in letters that can be read, within the image and without touching the next name."""
    figure = confusion(np.eye(classes, dtype=int).tolist(), [f"card_payment_wrong_rate_{i}" for i in range(classes)])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for labels, low, high in ((axes.get_xticklabels(), "x0", "x1"), (axes.get_yticklabels(), "y0", "y1")):
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: getattr(box, low))
        assert len(boxes) == classes
        assert min(min(box.x0, box.y0) for box in boxes) >= 0
        assert all(getattr(one, high) <= getattr(other, low) + 2 for one, other in itertools.pairwise(boxes))
        assert all(label.get_fontsize() * DPI / 72 >= 8 for label in labels)


def test_a_row_of_the_confusion_matrix_is_a_label():
    """Texts of the first class, all taken for the second, are a dark square at the top right, and orange: wrong."""
    pixels = to_pixels(confusion([[0, 5], [0, 0]], ["a", "b"])).astype(int)
    assert not (pixels == [8, 48, 107]).all(axis=-1).any()
    assert (to_pixels(confusion([[5, 0], [0, 0]], ["a", "b"])) == [8, 48, 107]).all(axis=-1).any()
    rows, columns = np.nonzero((pixels == [127, 39, 4]).all(axis=-1))
    height, width = pixels.shape[:2]
    assert rows.max() < 0.5 * height
    assert columns.min() > 0.5 * width
    assert len(rows) > 5000


@pytest.mark.parametrize(("count", "is_shown"), [(7, True), (12345, False), (10**12, False)])
def test_numbers_stay_in_their_cells(count, is_shown):
    """However long they are: what does not fit is left out."""
    figure = confusion((count * np.eye(20, dtype=int)).tolist(), [""] * 20)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    cell = axes.get_window_extent().width / 20
    assert len(axes.texts) == (20 if is_shown else 0)
    for number, text in enumerate(axes.texts):
        box = text.get_window_extent()
        left, bottom = axes.transData.transform((number - 0.5, number + 0.5))
        assert left <= box.x0 < box.x1 <= left + cell
        assert bottom <= box.y0 < box.y1 <= bottom + cell


def test_squares_have_the_colours_of_their_groups():
    """One colour for each group, also where there are more groups than colours, and a white edge."""
    groups = np.array([3, 0, 3, 1, 0, 20])
    images = colour_squares(groups)
    assert images.shape == (6, 3, SQUARE, SQUARE)
    middles = images[:5, :, SQUARE // 2, SQUARE // 2]
    equal = (middles[:, None] == middles[None, :]).all(axis=-1)
    assert (equal == (groups[:5, None] == groups[None, :5])).all()
    assert (images[:, :, 0] == 1).all()
    assert (images[:, :, :, -1] == 1).all()


def test_reliability_shows_the_bins_that_hold_texts():
    """A point for each bin with texts in it, at its confidence and accuracy."""
    bins = calibration_bins(np.array([0.5, 0.52, 0.95]), np.array([True, False, True]))
    figure = reliability(bins)
    _, line = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[pytest.approx(0.51), 0.5], [pytest.approx(0.95), 1.0]]


def test_a_letter_is_written_with_a_font_that_has_it():
    """Beside the usual font only those that are needed, and can be read."""
    stix = Path(mpl.get_data_path(), "fonts", "ttf", "STIXGeneral.ttf")
    installed = [("none", "no such file"), ("STIXGeneral", str(stix))]
    assert fonts_for(["küche", "привет"], installed=installed) == ["DejaVu Sans"]
    assert fonts_for(["\N{COMBINING ENCLOSING CIRCLE}"], installed=installed) == ["DejaVu Sans", "STIXGeneral"]
