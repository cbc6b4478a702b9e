"""The HTML page of predictions, with words coloured by their weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from encoder_cls.classifier.explanation import MIN_WEIGHT, STRONG, Explanation, WordWeight, marked
from encoder_cls.classifier.html_pages import escaped, html_page, shade
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.system.display import shortened

# The words whose weights are listed below a text.
MAX_STRONGEST = 5

# The characters of a word in that list.
LONGEST_WORD = 14

# The largest weight that is shown: larger ones change only what follows 0.9999 in a probability.
LARGEST_WEIGHT = 9.9

LEGEND = (
    '<p class="note words"><span class="against a9">orange, dotted</span> '
    '<span class="against a4">speaks against</span> the class, '
    '<span class="for a4">speaks for it</span> <span class="for a9">blue</span>: by how much the '
    "log odds of the class fall when the word is left out. 0.7 doubles the odds; "
    f"{STRONG:g}, in full colour, makes them {math.exp(STRONG):.0f} times as high; "
    f"beyond {LARGEST_WEIGHT} weights are not distinguished.</p>"
)


def render_predictions(
    rows: str, *, is_multi_label: bool, note: str | None = None, model: str = ""
) -> str:
    """Make a page of predictions.

    Args:
        rows: of `prediction_row`, one after the other.
        is_multi_label: whether rows have no runner-up.
        note: names the texts on the page if they are not all, such as "the first 10 texts".
        model: names the model.
    """
    notes = []
    if model:
        notes.append(f"Predicted by {escaped(model)}.")
    if note:
        notes.append(f"This page holds {escaped(note)} only.")

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
        f"{rows}</tbody>",
        "</table>",
    ]
    return html_page("Predictions", "\n".join(lines))


def prediction_row(
    text: str, prediction: Prediction, words: Explanation, *, label: str, notes: Sequence[str] = ()
) -> str:
    """Render a text with its prediction as a row of a table.

    Args:
        text: its words are coloured by their weights.
        prediction: for the text.
        words: of the text, with their weights.
        label: the prediction to show.
        notes: below the text.
    """
    probability = prediction.reason
    if prediction.probability is not None:
        probability = f"{prediction.probability:.3f}"

    shown = words_html(marked(text, words))
    below = _notes_below(words, notes)
    if below:
        shown += f'<br><span class="note">{below}</span>'

    return (
        f"<tr><td><bdi>{escaped(label)}</bdi></td><td>{probability}</td>"
        f'{_runner_up(prediction)}<td class="text">{shown}</td></tr>'
    )


def _runner_up(prediction: Prediction) -> str:
    """The cell of the second class; nothing in a multi-label table."""
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
    """Render the pieces of a text (see `marked`), coloured by their weights."""
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
    """Render the words with the largest weights, for paper, where no pointer shows weights."""
    listed = [word for word in weights if abs(word.weight) >= MIN_WEIGHT]
    strongest = sorted(listed, key=lambda word: -abs(word.weight))[:MAX_STRONGEST]

    rendered = []
    for word in strongest:
        name = escaped(shortened(word.word, limit=LONGEST_WORD))
        weight = weight_text(word.weight).replace("-", "\N{MINUS SIGN}")
        rendered.append(f'<span class="nowrap"><bdi>{name}</bdi> {weight}</span>')
    return ", ".join(rendered)


def weight_text(weight: float, *, digits: int = 1) -> str:
    """Format a weight with its sign, up to the `LARGEST_WEIGHT`."""
    if abs(weight) > LARGEST_WEIGHT:
        sign = "-"
        if weight > 0:
            sign = "+"
        return f"{sign}{LARGEST_WEIGHT} or more"
    return f"{weight:+.{digits}f}"
