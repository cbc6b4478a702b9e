"""Choose the unlabelled texts of an input to label next.

Candidates have the most uncertain predictions (`Prediction.uncertainty`). Many are similar to each
other, so those are chosen that represent most of the others (`TextPool.representatives`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from encoder_cls import (
    Classifier,
    Prediction,
    Reading,
    Row,
    TextPool,
    labelled_texts,
    predicted_rows,
    texts_alike,
)
from encoder_cls.errors import EncoderClsError
from encoder_cls.extras.label.pool import has_label
from encoder_cls.system.display import counted, shown
from encoder_cls.system.terminal import note

# The number of uncertain texts that are kept for each text to choose, and the most of them, unless
# more texts are to be chosen.
CANDIDATES = 10
MAX_CANDIDATES = 3000
# The least uncertainty of a candidate, as a share of that of the last text if the most uncertain
# ones were chosen: otherwise many texts of which the model is sure would outweigh a few.
MIN_UNCERTAINTY = 0.5


class Suggestion(NamedTuple):
    """A text that may be labelled next."""

    row: Row
    prediction: Prediction


def suggest_from(
    source: str,
    classifier: Classifier,
    run: Path,
    number: int,
    *,
    text_columns: Sequence[str],
    reading: Reading,
) -> list[Suggestion]:
    """Choose `number` texts of a source to label next, the most useful first.

    Rows with a label in the label column are left out, and so are the texts of the run's data.

    Raises:
        DataError: the source is missing or malformed.
    """
    label_column = classifier.text_format.label_column
    known = _known_texts(run)
    num_labelled = 0
    num_known = 0

    def is_wanted(row: Row) -> bool:
        nonlocal num_labelled, num_known
        if has_label(row, label_column):
            num_labelled += 1
            return False
        if _plain(row.text) in known:
            num_known += 1
            return False
        return True

    predicted = predicted_rows(
        classifier, source, text_columns=text_columns, reading=reading, wanted=is_wanted
    )
    suggestions = suggest(predicted, classifier, number)

    for warning in reading.notes.warnings(source):
        note(f"warning: {warning}")
    if num_labelled:
        note(
            f"{source}: {counted(num_labelled, 'row')} with a label in column "
            f"{shown(label_column)} left out"
        )
    if num_known:
        note(
            f"{source}: {counted(num_known, 'row')} left out whose text has a label in the "
            "data of the run"
        )
    if len(suggestions) < number:
        note(f"warning: {source}: has only {len(suggestions):,} different texts to suggest")
    return suggestions


def _known_texts(run: Path) -> set[int]:
    """The labelled texts of a run, in the form of `_plain`."""
    try:
        return {_plain(text) for text in labelled_texts(run)}
    except EncoderClsError as error:
        note(f"warning: texts of the run's data may be suggested, which cannot be read: {error}")
        return set()


def _plain(text: str) -> int:
    """A hash that is equal for texts that differ only in case and white space."""
    return hash(" ".join(text.casefold().split()))


def suggest(
    predicted: Iterable[tuple[Row, Prediction]], classifier: Classifier, number: int
) -> list[Suggestion]:
    """Choose at most `number` uncertain texts, the most useful first.

    Blank texts, and copies of others, are left out. Memory holds a hash of each text, and
    `CANDIDATES` for each to choose.
    """
    num_candidates = max(number, min(CANDIDATES * number, MAX_CANDIDATES))
    seen: set[int] = set()
    best: list[Suggestion] = []
    for row, prediction in predicted:
        key = _plain(row.text)
        # A blank text has no label.
        if key in seen or prediction.label is None:
            continue

        seen.add(key)
        best.append(Suggestion(row, prediction))
        if len(best) >= 2 * num_candidates:
            best = _most_uncertain(best)[:num_candidates]

    best = _without_copies(_most_uncertain(best))
    if not best:
        return []
    least = MIN_UNCERTAINTY * best[:number][-1].prediction.uncertainty
    best = [text for text in best[:num_candidates] if text.prediction.uncertainty >= least]

    pool = TextPool([suggestion.row.text for suggestion in best], tokenizer=classifier.tokenizer)
    uncertainty = np.array([suggestion.prediction.uncertainty for suggestion in best])
    chosen = pool.representatives(number, weights=uncertainty, among=len(best))
    return [best[index] for index in chosen]


def _most_uncertain(suggestions: list[Suggestion]) -> list[Suggestion]:
    return sorted(suggestions, key=lambda suggestion: -suggestion.prediction.uncertainty)


def _without_copies(suggestions: list[Suggestion]) -> list[Suggestion]:
    numbers = texts_alike([suggestion.row.text for suggestion in suggestions]).tolist()
    firsts: dict[int, Suggestion] = {}
    for number, suggestion in zip(numbers, suggestions, strict=True):
        firsts.setdefault(number, suggestion)
    return list(firsts.values())
