"""Pictures: what is in them is what they were drawn from."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from encoder_cls.evaluation import plots as pictures
from encoder_cls.evaluation.metrics import calibration_bins
from encoder_cls.evaluation.plots import (
    DOT,
    MOST_TOKENS,
    attention,
    confusion,
    dots,
    precision_recall,
    reliability,
    to_png,
)


def opened(png: bytes, mode: str = "RGB") -> np.ndarray:
    return np.array(Image.open(io.BytesIO(png)).convert(mode)).astype(int)


@pytest.mark.parametrize(
    "names",
    [
        ["a", "b", "c"],
        [f"class {number}" for number in range(100)],
        [f"class {number}" for number in range(300)],
        ["$x^2$", "5$", "a$_{$c", "\\$ \\frac{", "_{^", ""],
        ["küche", "Ελλάδα", "привет", "x" * 500, "a\x1b\nb"],
        ["天気", "😀"],
    ],
    ids=["3", "100", "300", "formulas", "not ASCII", "not in the font"],
)
def test_the_confusion_picture_is_a_readable_png(names):
    """Any number of classes and any names, without a warning (which pytest makes an error)."""
    picture = Image.open(io.BytesIO(confusion(np.eye(len(names), dtype=int).tolist(), names)))
    picture.load()
    assert picture.format == "PNG"
    assert 300 <= picture.width == picture.height <= 2000
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 10


def test_a_row_of_the_confusion_picture_is_a_label():
    """Texts of the first class, all taken for the second, are a dark square at the top right."""
    pixels = opened(confusion([[0, 5], [0, 0]], ["a", "b"]))
    rows, columns = np.nonzero((pixels == [8, 48, 107]).all(axis=-1))
    height, width = pixels.shape[:2]
    assert rows.max() < 0.5 * height
    assert columns.min() > 0.5 * width
    assert len(rows) > 5000


@pytest.mark.parametrize("count", [7, 12345, 10**12])
def test_numbers_stay_in_their_squares(count):
    """Beside the diagonal all is as if it had no numbers, however long they are."""
    matrix = np.eye(20, dtype=int)
    written = opened(confusion((count * matrix).tolist(), [""] * 20))
    blank = opened(confusion(np.eye(20).tolist(), [""] * 20))
    side = 480 // 20
    changed = np.argwhere((written != blank).any(axis=-1)) - [8, blank.shape[1] - 480 - 8]
    assert (changed[:, 0] // side == changed[:, 1] // side).all()


def test_dots_have_the_colours_of_their_groups():
    """One colour for each group, in the order of the texts, and nothing around them."""
    groups = np.array([3, 0, 3, 1, 0])
    sheet = opened(dots(groups), "RGBA")
    assert sheet.shape == (3 * DOT, 3 * DOT, 4)
    middles = sheet[DOT // 2 :: DOT, DOT // 2 :: DOT].reshape(9, 4)
    equal = (middles[:5, None] == middles[None, :5]).all(axis=-1)
    assert (equal == (groups[:, None] == groups[None, :])).all()
    assert (middles[:5, 3] == 255).all()
    assert not middles[5:].any()
    assert not sheet[::DOT, ::DOT, 3].any()


def test_reliability_shows_the_bins_that_hold_texts():
    """A point for each bin with texts in it, at its confidence and accuracy."""
    bins = calibration_bins(np.array([0.5, 0.52, 0.95]), np.array([True, False, True]))
    figure = reliability(bins)
    _, line = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[pytest.approx(0.51), 0.5], [pytest.approx(0.95), 1.0]]


@pytest.mark.parametrize("tokens", [1, 5, MOST_TOKENS + 20])
def test_attention_maps_are_side_by_side(tokens):
    """A map for each layer and head, its rows those of the weights, cut where there are too many tokens."""
    weights = np.random.default_rng(0).random((2, 3, tokens, tokens)).astype(np.float32)
    figure = attention([f"t{number}$" for number in range(tokens)], weights)
    image = figure.axes[0].images[0].get_array().filled(np.nan)
    size = min(tokens, MOST_TOKENS)
    last = image[-size:, -size:]
    np.testing.assert_allclose(last, weights[1, 2, :size, :size] / weights[1, 2, :size, :size].max(), rtol=1e-6)
    assert np.isfinite(image).sum() == 6 * size**2
    assert to_png(figure).startswith(b"\x89PNG")


def test_every_class_is_in_the_legend_of_its_curve():
    """Also one whose name begins with an underscore, which matplotlib would leave out."""
    probabilities, labels = np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 3])  # the last has no probability
    figure = precision_recall(probabilities, labels, ["_hidden", "__x", "plain"])
    assert [text.get_text().strip() for text in figure.axes[0].get_legend().get_texts()] == ["_hidden", "__x", "plain"]


def test_the_curve_of_many_classes_is_of_a_sample(monkeypatch):
    """Texts times classes are limited; all of them give the same curve as a sample of texts that are all alike."""
    probabilities, labels = np.full((50, 20), 0.05), np.arange(50) % 20
    monkeypatch.setattr(pictures, "MOST_DECISIONS", 200)
    axes = precision_recall(probabilities, labels, [str(i) for i in range(20)]).axes[0]
    assert axes.lines[0].get_xydata()[0].tolist() == [1.0, 0.05]
