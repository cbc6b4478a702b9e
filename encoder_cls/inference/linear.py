"""The linear classifier beside the encoder: weighted counts of the words and n-grams in a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.task import SINGLE_LABEL, Logits, Task
from encoder_cls.inference.weights import RowTable, Shapes, Weight, are_increasing, as_table
from encoder_cls.text.ngrams import (
    MOST_FREQUENT,
    NUM_FEATURE_IDS,
    RARITY_NUMBERS,
    TEMPLATE_IDS,
    count_features,
    find,
    rarity,
    tfidf,
)
from encoder_cls.text.token_arrays import KEPT_PER_TOKEN, TokenizedTexts

LINEAR = "linear."  # of the names of its weights
EVIDENCE_NUMBERS = 2
LEAST_EVIDENCE = 0.01  # of which there is a logarithm
WEIGHTS = ("frequent_token_ids", "feature_ids", "idf", "weights", "biases")


def linear_shapes(description: Mapping[str, Any], *, max_seq_len: int, margins: int) -> Shapes:
    """The shape of each weight of a `LinearClassifier`, by name; a `ValueError` where none has this description."""
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
    """One-vs-rest classifiers of n-gram features, one for each class; of two classes, the second against the first.

    Multi-label, there is one for each label, also of two.

    Attributes:
        max_tokens: read of a text, `[CLS]` counted.
        frequent_token_ids: tokens that are not a wildcard in n-gram templates, increasing.
        feature_ids: the known features, increasing, (features,).
        idf: inverse document frequencies, (features,).
        weights: (features, classes), or (features, 1) of two classes.
        biases: (classes,), or (1,) of two classes.
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
        """Make one of `named_weights`; a `ValueError`, where feature ids are not increasing, or out of range."""
        fields: dict[str, Any] = {name: weights[f"{LINEAR}{name}"] for name in WEIGHTS}
        if not are_increasing(fields["feature_ids"], NUM_FEATURE_IDS):
            raise ValueError("the feature ids of the linear classifier are not in order")
        return cls(max_tokens=max_tokens, task=task, **fields | {"weights": as_table(fields["weights"])})

    @property
    def description(self) -> dict[str, int]:
        """The numbers that `linear_shapes` takes."""
        frequent_tokens, features = len(self.frequent_token_ids), len(self.feature_ids)
        return {"max_tokens": self.max_tokens, "frequent_tokens": frequent_tokens, "features": features}

    def named_weights(self) -> dict[str, Weight]:
        """Its weights by name."""
        return {f"{LINEAR}{name}": getattr(self, name) for name in WEIGHTS}

    def logits(self, texts: TokenizedTexts) -> Logits:
        """Logits, (texts, classes)."""
        return self.read(texts, with_numbers=False)[0]

    def read(
        self, texts: TokenizedTexts, *, with_numbers: bool = True, leave_out: bool = False
    ) -> tuple[Logits, NDArray[np.float64] | None]:
        """Logits, (texts, classes), and on request evidence and `rarity`, (texts, `EVIDENCE_NUMBERS + RARITY_NUMBERS`).

        The evidence is what speaks for the best class: minus the logarithm of its sum, and minus the share of the
        features, by their squares, that do.
        """
        margins = np.tile(self.biases, (len(texts), 1))
        evidence, rarities = np.zeros((len(texts), EVIDENCE_NUMBERS)), [np.zeros((0, RARITY_NUMBERS))]
        row = 0
        for counts in count_features(
            texts,
            max_tokens=self.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            use_char_ngrams=bool((self.feature_ids[-1:] >= TEMPLATE_IDS).any()),
        ):
            # Looked up once for all these texts; unknown features weigh nothing.
            found = find(counts.ids, self.feature_ids)
            idf, weights = np.where(found < 0, 0, self.idf[found]), self.weights.take(found)
            values = tfidf(counts, counts.ids, idf).values
            rows = np.repeat(np.arange(len(counts)), np.diff(counts.offsets))
            some = margins[row : row + len(counts)]
            if weights.shape[1] == 1:
                some[:, 0] += np.bincount(rows, weights=values * weights[counts.columns, 0], minlength=len(counts))
            else:
                for text, (start, end) in enumerate(pairwise(counts.offsets)):
                    some[text] += values[start:end] @ weights[counts.columns[start:end]]
            if with_numbers:
                effects = values * weights[counts.columns, some.argmax(axis=1)[rows]]
                if weights.shape[1] == 1:
                    effects *= np.where(some[rows, 0] < 0, -1, 1)  # of two classes the first one
                evidence[row : row + len(counts)] = _evidence(rows, values, effects, len(counts))
                idf[idf == self._rarest if leave_out else False] = 0
                rarities.append(rarity(counts, idf, rarest=self._rarest))
            row += len(counts)
        numbers = np.hstack([evidence, np.concatenate(rarities)]) if with_numbers else None
        return self.task.margins_to_logits(margins), numbers

    @cached_property
    def _rarest(self) -> float:
        """The inverse document frequency of the rarest features."""
        return float(self.idf.max(initial=0))


def _evidence(
    rows: NDArray[np.int64], values: NDArray[np.float32], effects: NDArray[np.floating[Any]], num_texts: int
) -> NDArray[np.float64]:
    """The evidence in each text, (texts, `EVIDENCE_NUMBERS`), of features in these rows: their effects on its class."""
    is_for, squares = effects > 0, values.astype(np.float64) ** 2
    sums = [np.bincount(rows, it, num_texts) for it in (is_for * effects, is_for * squares, squares)]
    return -np.stack([np.log(LEAST_EVIDENCE + sums[0]), sums[1] / np.maximum(sums[2], 1e-9)], axis=1)
