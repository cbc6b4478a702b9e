"""The linear model beside the encoder: weighted counts of the words and n-grams in a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.ngrams import (
    MAX_FREQUENT,
    NUM_FEATURE_IDS,
    NUM_RARITY_FEATURES,
    TEMPLATE_IDS,
    Counts,
    SparseRows,
    count_features,
    find,
    rarity,
    tfidf,
)
from encoder_cls.metrics.logits import SINGLE_LABEL, Logits, Task
from encoder_cls.text.tokens import KEPT_PER_TOKEN, TokenizedTexts
from encoder_cls.weights import RowTable, Shapes, Weight, are_increasing, as_table

# The names of the weights in a model file begin with this.
LINEAR = "linear."
# The fields of a `LinearModel` that are weights.
WEIGHTS = ("frequent_token_ids", "feature_ids", "idf", "weights", "biases")


def linear_shapes(description: Mapping[str, Any], *, max_seq_len: int, margins: int) -> Shapes:
    """Return the shape of each weight of a `LinearModel`, by name.

    Raises:
        ValueError: no linear model has this description.
    """
    limits = {
        "max_tokens": (1, KEPT_PER_TOKEN * max_seq_len),
        "frequent_tokens": (0, MAX_FREQUENT),
        "features": (0, NUM_FEATURE_IDS),
    }
    for name, (least, most) in limits.items():
        number = description[name]
        if type(number) is not int or not least <= number <= most:
            raise ValueError(
                f"linear: {name}: invalid value {number!r} "
                f"(expected a whole number from {least} to {most})"
            )

    frequent_tokens = description["frequent_tokens"]
    features = description["features"]
    return {
        f"{LINEAR}frequent_token_ids": (frequent_tokens,),
        f"{LINEAR}feature_ids": (features,),
        f"{LINEAR}idf": (features,),
        f"{LINEAR}weights": (features, margins),
        f"{LINEAR}biases": (margins,),
    }


@dataclass(frozen=True, kw_only=True)
class LinearModel:
    """One-vs-rest classifiers of n-gram features, one for each class.

    For two classes, a single one separates the second from the first. In a multi-label task there
    is always one for each label.

    Attributes:
        max_tokens: how many tokens of a text are read, `[CLS]` included.
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
    ) -> LinearModel:
        """Make a model from its `named_weights`.

        Raises:
            ValueError: feature ids are out of order or range.
        """
        fields: dict[str, Any] = {}
        for name in WEIGHTS:
            fields[name] = weights[f"{LINEAR}{name}"]
        if not are_increasing(fields["feature_ids"], NUM_FEATURE_IDS):
            raise ValueError("the feature ids of the linear model are not in order")

        fields["weights"] = as_table(fields["weights"])
        return cls(max_tokens=max_tokens, task=task, **fields)

    @property
    def description(self) -> dict[str, int]:
        """The numbers that `linear_shapes` takes."""
        return {
            "max_tokens": self.max_tokens,
            "frequent_tokens": len(self.frequent_token_ids),
            "features": len(self.feature_ids),
        }

    def named_weights(self) -> dict[str, Weight]:
        """Return the weights by name."""
        return {f"{LINEAR}{name}": getattr(self, name) for name in WEIGHTS}

    def logits(self, texts: TokenizedTexts) -> Logits:
        """Compute logits, (texts, classes)."""
        logits, _ = self.read(texts, with_familiarity=False)
        return logits

    def count_features(self, texts: TokenizedTexts) -> Iterator[Counts]:
        """Count the features of texts that the model may know, some texts at a time."""
        knows_char_ngrams = bool((self.feature_ids[-1:] >= TEMPLATE_IDS).any())
        return count_features(
            texts,
            max_tokens=self.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            use_char_ngrams=knows_char_ngrams,
        )

    def read(
        self, texts: TokenizedTexts, *, with_familiarity: bool = True
    ) -> tuple[Logits, NDArray[np.float64] | None]:
        """Compute logits, and on request numbers that show how familiar a text is.

        Returns:
            logits: (texts, classes).
            numbers: `_evidence` and then `rarity`, (texts, `EVIDENCE_NUMBERS + RARITY_NUMBERS`);
                None unless `with_familiarity`.
        """
        rarest = 0.0
        if with_familiarity:
            rarest = float(self.idf.max(initial=0))

        margins = np.tile(self.biases, (len(texts), 1))
        familiarity_features = [np.zeros((0, NUM_EVIDENCE_FEATURES + NUM_RARITY_FEATURES))]
        first = 0
        for counts in self.count_features(texts):
            # Look up the features that occur. Unknown ones have no weight.
            found = find(counts.ids, self.feature_ids)
            idf = np.where(found < 0, 0, self.idf[found])
            weights = self.weights.take(found)

            # Add the products of TF-IDF values and weights to the biases.
            values = tfidf(counts, counts.ids, idf).values
            margins_here = margins[first : first + len(counts)]
            _add_products(margins_here, values, counts, weights)

            if with_familiarity:
                rows = _rows(counts)
                effects = _effects(margins_here, values, rows, weights, counts.columns)
                evidence = _evidence(values, effects, rows, len(counts))
                familiarity_features.append(
                    np.hstack([evidence, rarity(counts, idf, rarest=rarest)])
                )

            first += len(counts)

        logits = self.task.margins_to_logits(margins)
        if not with_familiarity:
            return logits, None
        return logits, np.concatenate(familiarity_features)

    def familiarity_before_refit(
        self, texts: TokenizedTexts, evidence: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Compute the numbers of `read` of texts that were learned from, as of new ones.

        Features of the lowest document frequency may be of these texts alone, so they count as
        unknown.

        Args:
            texts: texts that the model has learned from.
            evidence: the evidence of a model that had not learned from them; by default zeros,
                which do not count.
        """
        rarest = float(self.idf.max(initial=0))
        rarities = [np.zeros((0, NUM_RARITY_FEATURES))]
        for counts in self.count_features(texts):
            found = find(counts.ids, self.feature_ids)
            idf = np.where(found < 0, 0, self.idf[found])
            idf[idf == rarest] = 0
            rarities.append(rarity(counts, idf, rarest=rarest))

        if evidence is None:
            evidence = np.zeros((len(texts), NUM_EVIDENCE_FEATURES))
        return np.hstack([evidence, np.concatenate(rarities)])


def _rows(counts: SparseRows) -> NDArray[np.int64]:
    """Return the row of each value of a sparse matrix, (values,)."""
    return np.repeat(np.arange(len(counts)), np.diff(counts.offsets))


def _add_products(
    margins: NDArray[np.float32],
    values: NDArray[np.float32],
    counts: SparseRows,
    weights: NDArray[np.float32],
) -> None:
    """Add the product of features and weights to margins, (texts, machines), in place.

    `values` are those of the features at the places of the counts; `weights` are (columns,
    machines).
    """
    # For a single machine it is fastest to multiply all values at once.
    if weights.shape[1] == 1:
        products = values * weights[counts.columns, 0]
        margins[:, 0] += np.bincount(_rows(counts), weights=products, minlength=len(counts))
        return

    for text, (start, end) in enumerate(pairwise(counts.offsets)):
        margins[text] += values[start:end] @ weights[counts.columns[start:end]]


def _effects(
    margins: NDArray[np.float32],
    values: NDArray[np.float32],
    rows: NDArray[np.int64],
    weights: NDArray[np.float32],
    columns: NDArray[np.int32],
) -> NDArray[np.floating[Any]]:
    """Return what each value adds to the margin of its text's best class, (values,).

    `margins` are (texts, machines), `weights` (columns, machines); each value has a row and a
    column.
    """
    best_machines = margins.argmax(axis=1)
    effects: NDArray[np.floating[Any]] = values * weights[columns, best_machines[rows]]

    # A single machine separates two classes. What is against the second is for the first.
    if weights.shape[1] == 1:
        effects *= np.where(margins[rows, 0] < 0, -1, 1)
    return effects


# The numbers of `_evidence` for a text.
NUM_EVIDENCE_FEATURES = 2
# Added to the sum of effects before the logarithm, which is finite then.
MIN_EVIDENCE = 0.01


def _evidence(
    values: NDArray[np.float32],
    effects: NDArray[np.floating[Any]],
    rows: NDArray[np.int64],
    num_texts: int,
) -> NDArray[np.float64]:
    """Measure how little speaks for the best class of each text, (texts, `NUM_EVIDENCE_FEATURES`).

    The numbers are minus the logarithm of the sum of positive effects, and minus the share of the
    features, by their squares, that have them.
    """
    is_positive = effects > 0
    squares = values.astype(np.float64) ** 2

    effect_sums = np.bincount(rows, is_positive * effects, num_texts)
    square_sums = np.bincount(rows, squares, num_texts)
    positive_square_sums = np.bincount(rows, is_positive * squares, num_texts)

    log_effects = np.log(MIN_EVIDENCE + effect_sums)
    shares = positive_square_sums / np.maximum(square_sums, 1e-9)
    return -np.stack([log_effects, shares], axis=1)
