"""Pages of predictions: words in colours, attention maps, and nothing of a stranger's that runs."""

from __future__ import annotations

import base64
import html
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from encoder_cls.classifier.attention_maps import AttentionMaps, attention_maps
from encoder_cls.classifier.attention_page import MAX_MAP_TOKENS, render_attention
from encoder_cls.classifier.explanation import Explanation, WordWeight, marked
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.classifier.prediction_page import (
    page_around_rows,
    prediction_row,
    words_html,
)

HOSTILE = '<script>document.title="x"</script><img src=x onerror="alert(1)">"&\'{{ 7 * 7 }}{title}'
UNPRINTABLE = "\x00\ud800\x1b[31m\u202e\x9b"


def maps_of(tokens: list[str], *, layers: int = 2, heads: int = 3) -> AttentionMaps:
    """Attention maps with random weights."""
    random = np.random.default_rng(0)
    shape = (layers, heads, len(tokens), len(tokens))
    weights = random.random(shape).astype(np.float32)
    weights /= weights.sum(axis=-1, keepdims=True)
    return AttentionMaps(tokens=tokens, weights=weights)


def predicted(label: str, **probabilities: float) -> Prediction:
    """A prediction with these probabilities."""
    return Prediction(
        label=label,
        probability=0.5,
        probabilities=probabilities,
        truncated=False,
        unknown_words=0,
    )


def figures(page: str) -> list[ElementTree.Element]:
    """The SVG figures of a page, which are XML, without the scale, which is the first."""
    found = []
    for svg in re.findall("<svg.*?</svg>", page, re.DOTALL):
        found.append(ElementTree.fromstring(svg))

    scale, *others = found
    assert scale.attrib["aria-label"] == "scale"
    return others


def shown_weights(figure: ElementTree.Element) -> np.ndarray:
    """The weights of a map by its levels, (tokens, tokens)."""
    levels = np.frombuffer(base64.b64decode(figure.attrib["data-levels"]), dtype=np.uint8)
    side = round(len(levels) ** 0.5)
    return (levels.reshape(side, side) / 255) ** 2


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
    """The colour is full from `STRONG` on, and a tiny weight has none."""
    shown = words_html([("yes", 29.0), (" ", 0.0), ("no", -1.0), ("so", 0.09)])

    assert shown == (
        '<span class="words" dir="auto"><span class="for a9" title="+9.9 or more">yes</span> '
        '<span class="against a4" title="-1.00">no</span>so</span>'
    )


def explanation_of(text: str, *weights: float) -> Explanation:
    """Each character is a word."""
    words = []
    for index, weight in enumerate(weights):
        words.append(WordWeight(word=text[index], start=index, end=index + 1, weight=weight))
    return Explanation(words)


def test_the_strongest_weights_are_also_text():
    """A pointer shows them on a screen, but not on paper. A minus is no hyphen."""
    explanation = explanation_of("abcd", 0.5, -2, 0.01, 1)

    row = prediction_row("abcd", predicted("x", x=0.8, y=0.15), explanation, label="x")

    (below,) = re.findall('<br><span class="note">(.*?)</td>', row)
    weights = re.findall("<bdi>(.*?)</bdi> (.*?)</span>", below)
    assert weights == [("b", "−2.0"), ("d", "+1.0"), ("a", "+0.5")]


def test_a_page_of_predictions_names_runner_up_and_model():
    """A blank text has no runner-up, and so no heading of it on a phone."""
    prediction = predicted("x", x=0.8, y=0.15)
    blank = prediction._replace(reason="blank")
    rows = prediction_row("abcd", prediction, Explanation(), label="x")
    rows += prediction_row("", blank, Explanation(), label="?")

    page = rows.join(page_around_rows(is_multi_label=False, model="runs/<b> (0123)"))

    cell = 'data-value="0.150000"><bdi>y</bdi> <span class="note">0.150</span></td>'
    assert page.count(cell) == 1
    assert page.count('data-head="runner-up"') == 1
    assert "Predicted by runs/&lt;b&gt; (0123)." in page


def test_a_multi_label_page_has_no_runner_up():
    prediction = predicted("x", x=0.8, y=0.15)._replace(labels=("x",))

    row = prediction_row("abcd", prediction, Explanation(), label="x")
    page = row.join(page_around_rows(is_multi_label=True))

    assert "runner-up" not in page


def test_a_hostile_text_is_shown_and_not_run():
    """It is text; the only script is the page's own, whose hash the policy names."""
    prediction = predicted(HOSTILE, x=0.5, y=0.5)

    row = prediction_row(HOSTILE, prediction, Explanation(), label=HOSTILE, notes=[HOSTILE])
    page = row.join(page_around_rows(is_multi_label=False, note=HOSTILE))

    assert page.count("<script") == 1
    assert "<img" not in page
    # It is in the note above, the class, the text and the note below.
    assert html.unescape(page).count(HOSTILE) == 4
    assert "default-src 'none'" in page


def test_hostile_tokens_are_shown_and_not_run():
    """They are in the line about a text and beside its maps, whose SVG stays well formed."""
    tokens = ["[CLS]", HOSTILE, "<svg>", '"', "'&", "\u2028", UNPRINTABLE]

    page = render_attention(HOSTILE, [(HOSTILE + UNPRINTABLE, maps_of(tokens))])

    assert page.count("<script") == 1
    assert "<img" not in page
    # It is in the title, the heading and the line.
    assert html.unescape(page).count(HOSTILE) == 3
    assert all(character.isprintable() or character in "\n\t" for character in page)

    names = [text.text for text in figures(page)[0].iter("text")]
    assert names[: len(tokens)] == names[len(tokens) :]
    assert names[1:4] == ["<script>docum…", "<svg>", '"']


@pytest.mark.parametrize("num_tokens", [1, 5, MAX_MAP_TOKENS + 20])
def test_each_layer_and_head_has_its_map(num_tokens):
    """If tokens are too many, it is cut, with a note."""
    maps = maps_of([f"t{number}" for number in range(num_tokens)])

    page = render_attention("Attention", [("a line", maps)])

    is_cut = num_tokens > MAX_MAP_TOKENS
    assert f"alike would give each {1 / num_tokens:.3f}." in page
    assert (f"The first {MAX_MAP_TOKENS} tokens." in page) == is_cut

    names, *drawn = figures(page)
    assert [figure.attrib["aria-label"] for figure in drawn] == [
        "layer 1, head 1",
        "layer 1, head 2",
        "layer 1, head 3",
        "layer 2, head 1",
        "layer 2, head 2",
        "layer 2, head 3",
    ]

    # Each name is beside a row and below a column.
    size = min(num_tokens, MAX_MAP_TOKENS)
    assert len(list(names.iter("text"))) == 2 * size
    for figure in drawn:
        assert figure.find("use").attrib["href"] == f"#{names.find('g').attrib['id']}"

    all_weights = maps.weights.reshape(6, num_tokens, num_tokens)[:, :size, :size]
    for figure, weights in zip(drawn, all_weights, strict=True):
        np.testing.assert_allclose(shown_weights(figure), weights, atol=0.005)


def test_maps_in_which_tokens_look_at_all_alike_are_named():
    weights = np.stack([np.eye(8), np.full((8, 8), 1 / 8)])[None].astype(np.float32)
    maps = AttentionMaps(tokens=list("abcdefgh"), weights=weights)

    _, one, uniform = figures(render_attention("x", [("", maps)]))

    assert one.attrib["aria-label"] == "layer 1, head 1"
    assert uniform.attrib["aria-label"] == "layer 1, head 2 (nearly uniform)"


def test_each_text_has_its_own_names(classifier):
    texts = ["rain and snow", "", "the ball"]
    maps = [(text, attention_maps(classifier, text)) for text in texts]

    drawn = figures(render_attention("Attention", maps))

    ids = []
    references = []
    for figure in drawn:
        if figure.find("g") is not None:
            ids.append(figure.find("g").attrib["id"])
        else:
            references.append(figure.find("use").attrib["href"])
    assert len(set(ids)) == 3

    # The encoder has one layer.
    num_heads = classifier.encoder.architecture.num_heads
    expected = []
    for name in ids:
        expected += [f"#{name}"] * num_heads
    assert references == expected
