"""The linear classifier beside the encoder: weighted counts of the words and n-grams in a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.ngrams import (
    MOST_FREQUENT,
    NUM_FEATURE_IDS,
    RARITY_NUMBERS,
    TEMPLATE_IDS,
    Counts,
    count_features,
    find,
    rarity,
    tfidf,
)
from encoder_cls.metrics.logits import SINGLE_LABEL, Logits, Task
from encoder_cls.text.tokens import KEPT_PER_TOKEN, TokenizedTexts
from encoder_cls.weights import RowTable, Shapes, Weight, are_increasing, as_table

LINEAR = "linear."  # of the names of its weights
EVIDENCE_NUMBERS = 2
LEAST_EVIDENCE = 0.01  # added before the logarithm
WEIGHTS = ("frequent_token_ids", "feature_ids", "idf", "weights", "biases")


def linear_shapes(description: Mapping[str, Any], *, max_seq_len: int, margins: int) -> Shapes:
    """The shape of each weight of a `LinearClassifier`, by name; a `ValueError` if the description is impossible."""
    limits = {
        "max_tokens": (1, KEPT_PER_TOKEN * max_seq_len),
        "frequent_tokens": (0, MOST_FREQUENT),
        "features": (0, NUM_FEATURE_IDS),
    }
    for name, (least, most) in limits.items():
        if type(description[name]) is not int or not least <= description[name] <= most:
            raise ValueError(f"linear: {name} is not a number from {least} to {most}")
    frequent_tokens, features = description["frequent_tokens"], description["features"]
    shapes = ((frequent_tokens,), (features,), (features,), (features, margins), (margins,))
    return {f"{LINEAR}{name}": shape for name, shape in zip(WEIGHTS, shapes, strict=True)}


@dataclass(frozen=True, kw_only=True)
class LinearClassifier:
    """One-vs-rest classifiers of n-gram features, one for each class; for two classes, the second against the first.

    Multi-label, there is always one for each label.

    Attributes:
        max_tokens: that are read of a text, `[CLS]` included.
        frequent_token_ids: tokens that are not wildcards in n-gram templates, increasing.
        feature_ids: the known features, increasing, (features,).
        idf: inverse document frequencies, (features,).
        weights: (features, classes), or (features, 1) for two classes.
        biases: (classes,), or (1,) for two classes.
        task: single-label or multi-label.
    """

    max_tokens: int
    frequent_token_ids: NDArray[np.int32]
    feature_ids: NDArray[np.int32]
    idf: NDArray[np.float32]
    weights: RowTable
    biases: NDArray[np.float32]
    task: Task = SINGLE_LABEL

    @classmethod
    def from_weights(
        cls, weights: Mapping[str, Weight], *, max_tokens: int, task: Task = SINGLE_LABEL
    ) -> LinearClassifier:
        """Make a classifier from its `named_weights`; a `ValueError` if feature ids are out of order or range."""
        fields: dict[str, Any] = {name: weights[f"{LINEAR}{name}"] for name in WEIGHTS}
        if not are_increasing(fields["feature_ids"], NUM_FEATURE_IDS):
            raise ValueError("the feature ids of the linear classifier are not in order")
        return cls(
            max_tokens=max_tokens, task=task, **fields | {"weights": as_table(fields["weights"])}
        )

    @property
    def description(self) -> dict[str, int]:
        """The numbers that `linear_shapes` takes."""
        frequent_tokens, features = len(self.frequent_token_ids), len(self.feature_ids)
        return {
            "max_tokens": self.max_tokens,
            "frequent_tokens": frequent_tokens,
            "features": features,
        }

    def named_weights(self) -> dict[str, Weight]:
        """The weights by name."""
        return {f"{LINEAR}{name}": getattr(self, name) for name in WEIGHTS}

    def logits(self, texts: TokenizedTexts) -> Logits:
        """Logits, (texts, classes)."""
        return self.read(texts, with_numbers=False)[0]

    def count_features(self, texts: TokenizedTexts) -> Iterator[Counts]:
        """Count the features of texts that the classifier may know, some texts at a time."""
        return count_features(
            texts,
            max_tokens=self.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            use_char_ngrams=bool((self.feature_ids[-1:] >= TEMPLATE_IDS).any()),
        )

    def read(
        self, texts: TokenizedTexts, *, with_numbers: bool = True
    ) -> tuple[Logits, NDArray[np.float64] | None]:
        """Logits, (texts, classes), and on request evidence and `rarity`, (texts, `EVIDENCE_NUMBERS + RARITY_NUMBERS`).

        The evidence for the best class is minus the logarithm of the sum of positive effects, and minus the share of
        the features, by their squares, that have them.
        """
        margins = np.tile(self.biases, (len(texts), 1))
        numbers = [np.zeros((0, EVIDENCE_NUMBERS + RARITY_NUMBERS))]
        row, rarest = 0, float(self.idf.max(initial=0)) if with_numbers else 0.0
        for counts in self.count_features(texts):
            # Unknown features have no weight.
            found = find(counts.ids, self.feature_ids)
            idf, weights = np.where(found < 0, 0, self.idf[found]), self.weights.take(found)
            values = tfidf(counts, counts.ids, idf).values
            rows = np.repeat(np.arange(len(counts)), np.diff(counts.offsets))
            some = margins[row : row + len(counts)]
            if weights.shape[1] == 1:
                some[:, 0] += np.bincount(
                    rows, weights=values * weights[counts.columns, 0], minlength=len(counts)
                )
            else:
                for text, (start, end) in enumerate(pairwise(counts.offsets)):
                    some[text] += values[start:end] @ weights[counts.columns[start:end]]
            if with_numbers:
                effects = values * weights[counts.columns, some.argmax(axis=1)[rows]]
                if weights.shape[1] == 1:
                    effects *= np.where(some[rows, 0] < 0, -1, 1)  # for the first of two classes
                evidence = _evidence(rows, values, effects, len(counts))
                numbers.append(np.hstack([evidence, rarity(counts, idf, rarest=rarest)]))
            row += len(counts)
        return self.task.margins_to_logits(margins), np.concatenate(
            numbers
        ) if with_numbers else None


def _evidence(
    rows: NDArray[np.int64],
    values: NDArray[np.float32],
    effects: NDArray[np.floating[Any]],
    num_texts: int,
) -> NDArray[np.float64]:
    """The evidence in each text, (texts, `EVIDENCE_NUMBERS`), by the effects of features on its best class."""
    is_for, squares = effects > 0, values.astype(np.float64) ** 2
    sums = [
        np.bincount(rows, it, num_texts) for it in (is_for * effects, is_for * squares, squares)
    ]
    return -np.stack(
        [np.log(LEAST_EVIDENCE + sums[0]), sums[1] / np.maximum(sums[2], 1e-9)], axis=1
    )
