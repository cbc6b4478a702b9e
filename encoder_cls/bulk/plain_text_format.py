"""Predictions as text for people, with one line per prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import typer

from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_format import LineFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.explanation import STRONG, Explanation, marked
from encoder_cls.system.display import counted, printable, shown
from encoder_cls.system.row_text import readable

# What is shown in place of labels: where a multi-label model predicts none, and where all that a
# model predicts is withheld.
NO_LABEL = "no label"
WITHHELD = "?"
# The maximum number of characters of a text that are shown.
SHOWN_CHARACTERS = 60

# The colours, as red, green and blue, of words for a class and of words against it. Colour-blind
# people can distinguish them.
BLUE = (108, 174, 255)
ORANGE = (255, 170, 100)
# Words with less than this share of the full colour are not coloured.
FAINT = 0.05

# In an explanation without colours: the maximum number of words for a class, and against it.
MAX_REASONS = 3
# In an explanation without colours: the least weight of a word.
MIN_REASON = 0.005


class PlainTextFormat(LineFormat):
    """One line per prediction; explained words have colours if `is_coloured`, as on a terminal."""

    def __init__(self, options: PredictionOptions, *, max_seq_len: int, is_coloured: bool) -> None:
        self._options = options
        self._max_seq_len = max_seq_len
        self._is_coloured = is_coloured

    def lines(self, predicted_texts: Sequence[PredictedText]) -> list[str]:
        """Lines of labels and text, with notes in brackets."""
        return [self._line(predicted) for predicted in predicted_texts]

    def _line(self, predicted: PredictedText) -> str:
        prediction = predicted.prediction
        text = shown(readable(predicted.row.text), limit=SHOWN_CHARACTERS)
        if prediction.reason:
            return f"?  {text}  ({prediction.reason})"

        if predicted.words and self._is_coloured:
            text = _coloured(readable(predicted.row.text), predicted.words)
        notes = self._notes(predicted)
        line = f"{self._labels(predicted)}  {text}"
        if notes:
            line += f"  ({'; '.join(notes)})"
        return line

    def _notes(self, predicted: PredictedText) -> list[str]:
        notes = notes_on(predicted, self._options.withholding.set_threshold)
        if predicted.words and not self._is_coloured:
            notes += _reasons(predicted.words)
        if predicted.words and predicted.words.left_out:
            notes.append(f"only the first {len(predicted.words):,} words explained")

        if predicted.length:
            num_tokens, is_whole_text = predicted.length
            length = f"{num_tokens:,}"
            if not is_whole_text:
                length = f"more than {length}"
            notes.append(f"{self._max_seq_len:,} of {length} tokens")
        if predicted.prediction.unknown_words:
            notes.append(counted(predicted.prediction.unknown_words, "unknown word"))
        return notes

    def _labels(self, predicted: PredictedText) -> str:
        prediction = predicted.prediction
        answer = predicted.answer
        top = prediction.top(self._options.top_k)
        if prediction.labels is None:
            best_probability = prediction.probability or 0.0
            others = []
            for label, probability in top:
                if self._options.top_k > 1 and label != prediction.label:
                    others.append((prediction.shown(label), probability))
            return _with_probabilities([(shown_labels(predicted), best_probability), *others])

        named = [(label, prediction.probabilities[label]) for label in answer.labels]
        labels = _with_probabilities(named) or shown_labels(predicted)
        if answer.is_withheld and self._options.whole_texts:
            # The probability that was too low is that of all labels together.
            labels += f"  {prediction.prediction_probability:.3f}"
        others = [item for item in top if item[0] not in answer.labels]
        if self._options.top_k > 1 and others:
            return f"{labels}  ({_with_probabilities(others)})"
        return labels


def shown_labels(predicted: PredictedText) -> str:
    """The labels of a text, or what is shown in their place."""
    answer = predicted.answer
    if answer.labels:
        return ", ".join(map(predicted.prediction.shown, answer.labels))
    if answer.is_withheld or predicted.prediction.labels is None:
        return WITHHELD
    return NO_LABEL


def notes_on(predicted: PredictedText, set_threshold: float | None) -> list[str]:
    """Name withheld labels, a set, and a text unlike the training texts."""
    notes = []
    if predicted.prediction.labels is not None and predicted.answer.is_withheld:
        probabilities = predicted.prediction.probabilities
        withheld = [(label, probabilities[label]) for label in predicted.answer.withheld_labels]
        notes.append(f"withheld: {_with_probabilities(withheld) or NO_LABEL}")
    if set_threshold is not None:
        label_set = predicted.prediction.label_set(set_threshold)
        notes.append(f"set: {', '.join(printable(label) for label in label_set)}")
    if predicted.prediction.unfamiliar:
        notes.append("unlike the training texts")
    return notes


def _with_probabilities(classes: Iterable[tuple[str, float]]) -> str:
    return "  ".join(f"{printable(label)} {probability:.3f}" for label, probability in classes)


def _coloured(text: str, words: Explanation) -> str:
    """Words for the class get a blue background, others an orange one, of weight 0 white."""
    pieces = []
    for piece, weight in marked(text, words):
        strength = min(abs(weight / STRONG), 1.0)
        if strength < FAINT:
            pieces.append(printable(piece))
            continue

        full_colour = BLUE if weight > 0 else ORANGE
        red, green, blue = (round(255 - (255 - channel) * strength) for channel in full_colour)
        pieces.append(typer.style(printable(piece), bg=(red, green, blue), fg="black"))
    return "".join(pieces)


def _reasons(words: Explanation) -> Iterator[str]:
    for sign, side in ((1, "for it"), (-1, "against it")):
        weighty = [word for word in words if sign * word.weight >= MIN_REASON]
        weighty.sort(key=lambda word: -abs(word.weight))
        if weighty:
            named = [f"{printable(word.word)} {word.weight:+.2f}" for word in weighty]
            yield f"{side} {', '.join(named[:MAX_REASONS])}"
