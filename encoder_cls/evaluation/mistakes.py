"""The most confident mistakes of a classifier, with the words that explain them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explanation import WordWeight
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.metrics.tasks import MULTI_LABEL
from encoder_cls.system.row_text import readable
from encoder_cls.text.tokens import TokenizedTexts

MAX_MISTAKES = 20
# The most tokens that are read to explain the mistakes of a report, which takes some seconds.
MAX_EXPLAINED_TOKENS = 400_000


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong prediction for a text; multi-label, a wrong or missed label.

    Attributes:
        labels: exactly one in a single-label task, as in `predictions`.
        prediction: the wrong class; multi-label, a wrong or missed label.
        is_missed: None in a single-label task.
        words: their weights for `prediction`; empty if that would take too long.
        num_rows: mistakes with this text, of which a report shows one.
    """

    text: str
    where: str
    labels: tuple[str, ...]
    predictions: tuple[str, ...]
    prediction: str
    is_missed: bool | None
    probability: float
    likely_mislabelled: bool
    words: Sequence[WordWeight]
    num_rows: int = 1

    @property
    def kind(self) -> str:
        """Multi-label `missed` or `given`; else empty."""
        if self.is_missed is None:
            return ""
        if self.is_missed:
            return "missed"
        return "given"

    def to_dict(self) -> dict[str, Any]:
        """The mistake as JSON values."""
        values: dict[str, Any] = {"text": self.text, "where": self.where}
        if self.is_missed is None:
            (values["label"],) = self.labels
            values["prediction"] = self.prediction
        else:
            values["labels"] = self.labels
            values["predictions"] = self.predictions
            values["label"] = self.prediction
            values["is_missed"] = self.is_missed

        values["probability"] = self.probability
        values["likely_mislabelled"] = self.likely_mislabelled
        values["words"] = [asdict(word) for word in self.words]
        return values


def worst_mistakes(
    classifier: Classifier,
    predictions: SplitPredictions,
    tokenized: TokenizedTexts,
    doubtful: frozenset[int],
) -> list[Mistake]:
    """The most confident mistakes, explained as time allows.

    `doubtful` are texts whose labels seem to be wrong.
    """
    surest = surest_mistakes(predictions)
    rows = np.array([row for row, _ in surest], dtype=np.int64)
    texts = [predictions.split.texts[row] for row in rows]
    wrong_classes = [predictions.label_names[number] for _, number in surest]

    # Explain the first mistakes until the limit. Explaining a text reads the whole text once for
    # each of its words, so the number of tokens that are read is about the square of its length.
    tokens_read = np.cumsum(tokenized.lengths[rows] ** 2)
    num_explained = int((tokens_read < MAX_EXPLAINED_TOKENS).sum())
    explanations: list[Sequence[WordWeight]] = list(
        classifier.explain_tokenized(
            texts[:num_explained],
            tokenized.take(rows[:num_explained]),
            wrong_classes[:num_explained],
        )
    )
    explanations += [()] * (len(surest) - num_explained)

    rows_of_text = Counter(predictions.split.texts[row] for row in predictions.mistakes.tolist())
    mistakes = []
    for (row, number), text, words in zip(surest, texts, explanations, strict=True):
        is_missed = None
        if predictions.task is MULTI_LABEL:
            is_missed = bool(predictions.labels[row, number])

        mistake = Mistake(
            text=readable(text),
            where=predictions.split.where[row],
            labels=predictions.names(predictions.labels[row]),
            predictions=predictions.names(predictions.predicted_labels[row]),
            prediction=predictions.label_names[number],
            is_missed=is_missed,
            probability=float(predictions.probabilities[row, number]),
            likely_mislabelled=row in doubtful,
            words=words,
            num_rows=rows_of_text[text],
        )
        mistakes.append(mistake)
    return mistakes


def surest_mistakes(predictions: SplitPredictions) -> list[tuple[int, int]]:
    """The surest mistakes in `MAX_MISTAKES` different texts, each a text and a class by number.

    The class is the wrong prediction; multi-label, the wrong or missed label.
    """
    if predictions.task is MULTI_LABEL:
        return _surest_wrong_labels(predictions)

    mistakes = predictions.mistakes
    wrong_classes = predictions.predicted_labels[mistakes]
    confidence = predictions.probabilities[mistakes, wrong_classes]
    surest = np.argsort(-confidence, kind="stable")
    taken = surest[_first_of_texts(predictions, mistakes[surest])]
    return list(zip(mistakes[taken].tolist(), wrong_classes[taken].tolist(), strict=True))


def _surest_wrong_labels(predictions: SplitPredictions) -> list[tuple[int, int]]:
    """Choose half wrong and half missed labels in different texts, if possible.

    A classifier is nearly sure that a text lacks most labels, so missed ones would fill the list.
    """
    num_classes = predictions.logits.shape[1]
    has_label = predictions.labels[:, :num_classes]
    is_wrong = predictions.predicted_labels[:, :num_classes] != has_label

    # Order all mistakes, the surest first. Each is a position in the flattened array (texts,
    # classes).
    mistakes = np.flatnonzero(is_wrong)
    confidence = np.abs(has_label - predictions.probabilities).ravel()[mistakes]
    surest = mistakes[np.argsort(-confidence, kind="stable")]

    # Rank the mistakes of each kind by themselves: 1, 2, ...
    is_missed = has_label.ravel()[surest]
    ranks = np.where(is_missed, np.cumsum(is_missed), np.cumsum(~is_missed))

    # Take a mistake of each kind in turn, then sort the taken ones by confidence again.
    in_turn = np.argsort(ranks, kind="stable")
    rows_in_turn, _ = np.unravel_index(surest[in_turn], is_wrong.shape)
    taken = in_turn[_first_of_texts(predictions, rows_in_turn)]
    rows, classes = np.unravel_index(surest[np.sort(taken)], is_wrong.shape)
    return list(zip(rows.tolist(), classes.tolist(), strict=True))


def _first_of_texts(predictions: SplitPredictions, rows: NDArray[np.integer]) -> list[int]:
    positions: list[int] = []
    seen: set[str] = set()
    for position, row in enumerate(rows.tolist()):
        if len(positions) == MAX_MISTAKES:
            break
        text = predictions.split.texts[row]
        if text not in seen:
            seen.add(text)
            positions.append(position)
    return positions
