"""Pages of predictions: words in colours, attention maps, and nothing of a stranger's that runs."""

from __future__ import annotations

import base64
import html
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from encoder_cls.classifier.attention_page import MOST_MAP_TOKENS, render_attention
from encoder_cls.classifier.explain import (
    AttentionMaps,
    Explanation,
    WordWeight,
    attention_maps,
    marked,
)
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.classifier.prediction_page import (
    prediction_row,
    render_predictions,
    words_html,
)

HOSTILE = '<script>document.title="x"</script><img src=x onerror="alert(1)">"&\'{{ 7 * 7 }}{title}'
UNPRINTABLE = "\x00\ud800\x1b[31m\u202e\x9b"


def maps_of(tokens: list[str], *, layers: int = 2, heads: int = 3) -> AttentionMaps:
    weights = (
        np.random.default_rng(0)
        .random((layers, heads, len(tokens), len(tokens)))
        .astype(np.float32)
    )
    return AttentionMaps(tokens=tokens, weights=weights / weights.sum(axis=-1, keepdims=True))


def answer(label: str, **probabilities: float) -> Prediction:
    return Prediction(
        label=label, probability=0.5, probabilities=probabilities, truncated=False, unknown_words=0
    )


def figures(page: str) -> list[ElementTree.Element]:
    """The SVG figures of a page, which are XML; the scale, which is the first, left out."""
    found = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", page, re.DOTALL)]
    return [figure for figure in found if figure.attrib.get("aria-label") != "scale"]


def pixels(figure: ElementTree.Element) -> np.ndarray:
    """The image in a figure, (rows, columns, 3)."""
    address = figure.find("image").attrib["href"]
    return imread(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))[
        :, :, :3
    ]


def test_what_is_marked_is_the_whole_text():
    text = "  no, really  "
    words = [
        WordWeight(word="no", start=2, end=4, weight=1.5),
        WordWeight(word="really", start=6, end=12, weight=-1.0),
    ]
    pieces = marked(text, words)
    assert "".join(piece for piece, _ in pieces) == text
    assert pieces == [("  ", 0.0), ("no", 1.5), (", ", 0.0), ("really", -1.0), ("  ", 0.0)]


def test_words_have_the_colour_of_their_weight():
    """For or against, the full colour from `STRONG` on; no number is beyond the scale, and next to nothing is plain."""
    shown = words_html([("yes", 29.0), (" ", 0.0), ("no", -1.0), ("so", 0.09)])
    assert shown == (
        '<span class="words" dir="auto"><span class="for a9" title="+9.9 or more">yes</span> '
        '<span class="against a4" title="-1.00">no</span>so</span>'
    )


def test_an_explanation_names_runner_up_model_and_numbers_that_print():
    """What the pointer would show is also text, the strongest first; a minus is no hyphen."""
    found = zip("abcd", (0.5, -2, 0.01, 1), strict=True)
    weights = [
        WordWeight(word=word, start=at, end=at + 1, weight=weight)
        for at, (word, weight) in enumerate(found)
    ]
    prediction = answer("x", x=0.8, y=0.15)
    row = prediction_row("abcd", prediction, Explanation(weights), label="x")
    blank = prediction_row("", replace(prediction, reason="blank"), Explanation(weights), label="?")
    page = render_predictions(f"{row}\n{blank}\n", is_multi_label=False, model="runs/<b> (0123)")
    assert (
        page.count('data-value="0.150000"><bdi>y</bdi> <span class="note">0.150</span></td>') == 1
    )
    assert "Answered by runs/&lt;b&gt; (0123)." in page
    numbers = re.findall('<br><span class="note">(.*?)</td>', page)
    assert [re.findall("<bdi>(.*?)</bdi> (.*?)</span>", it) for it in numbers] == 2 * [
        [("b", "−2.0"), ("d", "+1.0"), ("a", "+0.5")]
    ]
    assert "<bdi>c</bdi>" not in page
    # A heading of nothing on a phone, where there is none.
    assert page.count('data-head="runner-up"') == 1
    row = prediction_row(
        "abcd", replace(prediction, labels=("x",)), Explanation(weights), label="x"
    )
    assert "runner-up" not in render_predictions(row, is_multi_label=True)


def test_a_hostile_text_is_shown_and_not_run():
    """It is text in the page; the only script is the page's own, and the policy names its hash."""
    row = prediction_row(
        HOSTILE, answer(HOSTILE, x=0.5, y=0.5), Explanation(), label=HOSTILE, notes=[HOSTILE]
    )
    page = render_predictions(row, is_multi_label=False, note=HOSTILE)
    assert page.count("<script") == 1
    assert "<img" not in page
    assert html.unescape(page).count(HOSTILE) == 4  # the note above, class, text, the note below
    assert "default-src 'none'" in page


def test_hostile_tokens_are_shown_and_not_run():
    """In the line about a text and beside its maps, whose SVG stays well formed."""
    tokens = ["[CLS]", HOSTILE, "<svg>", '"', "'&", "\u2028", UNPRINTABLE]
    page = render_attention(HOSTILE, [(HOSTILE + UNPRINTABLE, maps_of(tokens))])
    assert page.count("<script") == 1
    assert "<img" not in page
    assert html.unescape(page).count(HOSTILE) == 3  # title, heading, line
    assert all(c.isprintable() or c in "\n\t" for c in page)
    names = [text.text for text in figures(page)[0].iter("text")]
    assert names[: len(tokens)] == names[len(tokens) :]
    assert names[1:4] == ["<script>docum…", "<svg>", '"']


@pytest.mark.parametrize("tokens", [1, 5, MOST_MAP_TOKENS + 20])
def test_each_layer_and_head_has_its_map(tokens):
    """Its rows are those of the weights, the darker the larger, cut, with a note, where tokens are too many."""
    maps = maps_of([f"t{number}" for number in range(tokens)])
    page = render_attention("Attention", [("a line", maps)])
    size = min(tokens, MOST_MAP_TOKENS)
    names, *drawn = figures(page)
    assert [figure.attrib["aria-label"] for figure in drawn] == [
        f"layer {i}, head {j}" for i in (1, 2) for j in (1, 2, 3)
    ]
    assert f"alike would give each {1 / tokens:.3f}." in page
    assert {figure.find("use").attrib["href"] for figure in drawn} == {
        f"#{names.find('g').attrib['id']}"
    }
    assert len(list(names.iter("text"))) == 2 * size
    for figure, weights in zip(
        drawn, maps.weights.reshape(6, tokens, tokens)[:, :size, :size], strict=True
    ):
        darkness = 1 - pixels(figure).mean(axis=-1)
        assert darkness.shape == (size, size)
        order = np.argsort(weights.ravel())
        assert (np.diff(darkness.ravel()[order]) >= -1e-6).all()
        levels = np.frombuffer(
            base64.b64decode(figure.attrib["data-levels"]), dtype=np.uint8
        ).reshape(size, size)
        np.testing.assert_allclose((levels / 255) ** 2, weights, atol=0.005)
    assert (f"The first {MOST_MAP_TOKENS} tokens." in page) == (tokens > MOST_MAP_TOKENS)


def test_all_maps_have_one_scale_and_uniform_ones_are_named():
    """A head that looks at all alike is as pale as that is, and named; a head that looks at one token is dark."""
    weights = np.stack([np.eye(8), np.full((8, 8), 1 / 8)])[None].astype(np.float32)
    one, uniform = figures(
        render_attention("x", [("", AttentionMaps(tokens=list("abcdefgh"), weights=weights))])
    )[1:]
    assert uniform.attrib["aria-label"] == "layer 1, head 2 (nearly uniform)"
    assert one.attrib["aria-label"] == "layer 1, head 1"
    # The darkest blue.
    assert (1 - pixels(one)).mean(axis=-1).max() == pytest.approx(1 - np.mean([8, 48, 107]) / 255)
    assert (1 - pixels(uniform)).mean(axis=-1).max() < 0.4


def test_each_text_has_its_own_names(classifier):
    texts = ["rain and snow", "", "the ball"]
    page = render_attention(
        "Attention", [(text, attention_maps(classifier, text)) for text in texts]
    )
    ids = [
        figure.find("g").attrib["id"] for figure in figures(page) if figure.find("g") is not None
    ]
    assert len(set(ids)) == 3
    used = [
        figure.find("use").attrib["href"]
        for figure in figures(page)
        if figure.find("use") is not None
    ]
    heads = classifier.encoder.architecture.num_heads
    assert used == [f"#{name}" for name in ids for _ in range(heads)]  # of one layer
