"""The HTML page of predictions, on which words are coloured by their weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from encoder_cls.classifier.explanation import MIN_WEIGHT, STRONG, Explanation, WordWeight, marked
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.system.display import shortened
from encoder_cls.system.html_pages import html_page, macro, shade

TEMPLATE = "classifier/prediction_page.html"

# The most words that are listed with their weights below a text.
MAX_STRONGEST = 5

# The most characters of a word in this list.
MAX_WORD_LENGTH = 14

# The largest weight that is shown as a number. Differences between larger weights change only the
# digits behind 0.9999 in a probability.
MAX_WEIGHT = 9.9

# The place of the rows in a page. No escaped text contains it.
_ROWS = Markup("<!-- rows -->")


class ShownWord(NamedTuple):
    """A word, or a piece between words; the colour is a class of the page's style."""

    text: str
    weight: str = ""
    colour: str = ""


def page_around_rows(*, is_multi_label: bool, note: str = "", model: str = "") -> tuple[str, str]:
    """The HTML before and after the rows, so that any number of rows can be written between."""
    notes = []
    if model:
        notes.append(f"Predicted by {model}.")
    if note:
        notes.append(note)

    body = macro(TEMPLATE, "page")(notes, is_multi_label, legend(), _ROWS)
    before, _, after = html_page("Predictions", body).partition(_ROWS)
    return before, after


def legend() -> Markup:
    """What the colours of words mean."""
    return macro(TEMPLATE, "legend")(f"{STRONG:g}", f"{math.exp(STRONG):.0f}", MAX_WEIGHT)


def prediction_row(
    text: str,
    prediction: Prediction,
    words: Explanation | None,
    *,
    label: str,
    notes: Sequence[str] = (),
) -> str:
    """Render a text with its prediction as a row of a table, with notes below the text.

    `words` is None if the prediction is not explained; `label` is shown as the predicted class.
    """
    words = words or Explanation()
    below = [f"({note})" for note in notes]
    if words.left_out:
        below.append(f"(the last {words.left_out} words are not explained)")
    pieces = _coloured(marked(text, words))
    return str(macro(TEMPLATE, "row")(label, prediction, pieces, _strongest(words), below))


def words_html(pieces: Iterable[tuple[str, float]]) -> Markup:
    """Render the pieces of a text that `marked` yields as coloured HTML."""
    return macro(TEMPLATE, "words")(_coloured(pieces))


def strongest_html(weights: Sequence[WordWeight]) -> Markup:
    """Render the words with the largest weights as a list."""
    return macro(TEMPLATE, "strongest")(_strongest(weights))


def _coloured(pieces: Iterable[tuple[str, float]]) -> list[ShownWord]:
    shown = []
    for piece, weight in pieces:
        if abs(weight) < MIN_WEIGHT:
            shown.append(ShownWord(piece))
            continue
        side = "against"
        if weight > 0:
            side = "for"
        colour = f"{side} {shade(abs(weight) / STRONG)}"
        shown.append(ShownWord(piece, _weight_text(weight, digits=2), colour))
    return shown


def _strongest(weights: Sequence[WordWeight]) -> list[ShownWord]:
    listed = [word for word in weights if abs(word.weight) >= MIN_WEIGHT]
    strongest = sorted(listed, key=lambda word: -abs(word.weight))[:MAX_STRONGEST]

    shown = []
    for word in strongest:
        weight = _weight_text(word.weight).replace("-", "\N{MINUS SIGN}")
        shown.append(ShownWord(shortened(word.word, limit=MAX_WORD_LENGTH), weight))
    return shown


def _weight_text(weight: float, *, digits: int = 1) -> str:
    """Format a weight with its sign; beyond `MAX_WEIGHT`, as "+9.9 or more"."""
    if abs(weight) > MAX_WEIGHT:
        sign = "-"
        if weight > 0:
            sign = "+"
        return f"{sign}{MAX_WEIGHT} or more"
    return f"{weight:+.{digits}f}"
