"""The HTML page of predictions, on which words are coloured by their weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from encoder_cls.classifier.explanation import MIN_WEIGHT, STRONG, Explanation, WordWeight, marked
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.system.display import shortened
from encoder_cls.system.html_pages import escaped, html_page, shade

# The most words that are listed with their weights below a text.
MAX_STRONGEST = 5

# The most characters of a word in this list.
MAX_WORD_LENGTH = 14

# The largest weight that is shown as a number. Differences between larger weights change only the
# digits behind 0.9999 in a probability.
MAX_WEIGHT = 9.9

LEGEND = (
    '<p class="note words"><span class="against a9">orange, dotted</span> '
    '<span class="against a4">speaks against</span> the class, '
    '<span class="for a4">speaks for it</span> <span class="for a9">blue</span>: by how much the '
    "log odds of the class fall when the word is left out. 0.7 doubles the odds; "
    f"{STRONG:g}, in full colour, makes them {math.exp(STRONG):.0f} times as high; "
    f"beyond {MAX_WEIGHT} weights are not distinguished.</p>"
)


# The place of the rows in a page. No escaped text contains it.
_ROWS = "<!-- rows -->"


def page_around_rows(*, is_multi_label: bool, note: str = "", model: str = "") -> tuple[str, str]:
    """The HTML before and after the rows of a page of predictions, which `prediction_row` makes.

    So any number of rows can be written. Texts with several labels have no column for the second
    class. An empty `note` about the rows or name of the `model` is left out.
    """
    notes = []
    if model:
        notes.append(f"Predicted by {escaped(model)}.")
    if note:
        notes.append(escaped(note))

    heads = '<th class="middling">class</th><th class="narrow">probability</th>'
    if not is_multi_label:
        heads += '<th class="text wider">runner-up</th>'
    heads += '<th class="text">text</th>'

    lines = ["<h1>Predictions</h1>"]
    if notes:
        lines.append(f'<p class="note">{" ".join(notes)}</p>')
    lines += [
        LEGEND,
        '<table class="sortable stacked full">',
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
        f"{_ROWS}</tbody>",
        "</table>",
    ]
    before, _, after = html_page("Predictions", "\n".join(lines)).partition(_ROWS)
    return before, after


def prediction_row(
    text: str,
    prediction: Prediction,
    words: Explanation | None,
    *,
    label: str,
    notes: Sequence[str] = (),
) -> str:
    """Render a text with its prediction as a row of a table, with notes below the text.

    Words are coloured by their weights; they are None if the prediction is not explained. The label
    is the text in the column of the predicted class.
    """
    # A text without a prediction has the reason in place of the probability.
    probability = prediction.reason
    if prediction.probability is not None:
        probability = f"{prediction.probability:.3f}"

    words = words or Explanation()
    shown = words_html(marked(text, words))
    below = _notes_below(words, notes)
    if below:
        shown += f'<br><span class="note">{below}</span>'

    return (
        f"<tr><td><bdi>{escaped(label)}</bdi></td><td>{probability}</td>"
        f'{_runner_up(prediction)}<td class="text">{shown}</td></tr>'
    )


def _runner_up(prediction: Prediction) -> str:
    """The cell with the second most probable class; empty in a multi-label table."""
    if prediction.labels is not None:
        return ""
    if prediction.reason:
        return '<td class="text" data-value="0"></td>'
    _, (name, probability) = prediction.top(2)
    return (
        f'<td class="text" data-head="runner-up" data-value="{probability:.6f}">'
        f'<bdi>{escaped(name)}</bdi> <span class="note">{probability:.3f}</span></td>'
    )


def _notes_below(words: Explanation, notes: Sequence[str]) -> str:
    below = []
    strongest = strongest_words(words)
    if strongest:
        below.append(strongest)
    below += [escaped(f"({note})") for note in notes]
    if words.left_out:
        below.append(f"(the last {words.left_out} words are not explained)")
    return " ".join(below)


def words_html(pieces: Iterable[tuple[str, float]]) -> str:
    """Render pieces of a text with their weights, which `marked` yields, as coloured HTML."""
    shown = []
    for piece, weight in pieces:
        if abs(weight) < MIN_WEIGHT:
            shown.append(escaped(piece))
            continue
        side = "against"
        if weight > 0:
            side = "for"
        title = weight_text(weight, digits=2)
        shown.append(
            f'<span class="{side} {shade(abs(weight) / STRONG)}" title="{title}">'
            f"{escaped(piece)}</span>"
        )
    return f'<span class="words" dir="auto">{"".join(shown)}</span>'


def strongest_words(weights: Sequence[WordWeight]) -> str:
    """Render the words with the largest weights as a list.

    On paper, where no pointer can show the weight of a word, this list still shows the weights.
    """
    listed = [word for word in weights if abs(word.weight) >= MIN_WEIGHT]
    strongest = sorted(listed, key=lambda word: -abs(word.weight))[:MAX_STRONGEST]

    rendered = []
    for word in strongest:
        name = escaped(shortened(word.word, limit=MAX_WORD_LENGTH))
        weight = weight_text(word.weight).replace("-", "\N{MINUS SIGN}")
        rendered.append(f'<span class="nowrap"><bdi>{name}</bdi> {weight}</span>')
    return ", ".join(rendered)


def weight_text(weight: float, *, digits: int = 1) -> str:
    """Format a weight with its sign; beyond `MAX_WEIGHT`, as "+9.9 or more"."""
    if abs(weight) > MAX_WEIGHT:
        sign = "-"
        if weight > 0:
            sign = "+"
        return f"{sign}{MAX_WEIGHT} or more"
    return f"{weight:+.{digits}f}"
