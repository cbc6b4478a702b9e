"""The linear model beside the encoder: it sums a weight for each word and n-gram of a text."""

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

# The prefix of the names of the linear model's weights in a model file.
LINEAR = "linear."
# The fields of a `LinearModel` that hold weights.
WEIGHTS = ("frequent_token_ids", "feature_ids", "idf", "weights", "biases")


def linear_shapes(description: Mapping[str, Any], *, max_seq_len: int, margins: int) -> Shapes:
    """Return the shape of each weight of a `LinearModel`, by the weight's name.

    Args:
        description: the `LinearModel.description` that a model file holds.
        max_seq_len: the maximum length of a text for the encoder, in tokens.
        margins: the number of one-vs-rest machines of the model.

    Raises:
        ValueError: a number of the description is outside its limits.
    """
    limits = {
        "max_tokens": (1, KEPT_PER_TOKEN * max_seq_len),
        "frequent_tokens": (0, MAX_FREQUENT),
        "features": (0, NUM_FEATURE_IDS),
    }
    for name, (minimum, maximum) in limits.items():
        number = description[name]
        if type(number) is not int or not minimum <= number <= maximum:
            raise ValueError(
                f"linear: {name}: invalid value {number!r} "
                f"(expected a whole number from {minimum} to {maximum})"
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
    """A linear classifier of n-gram features, with one one-vs-rest machine for each class.

    A machine computes the margin of its class: a bias plus the weighted TF-IDF values of a text.
    A single-label task of two classes has only one machine, which separates the second class from
    the first. A multi-label task always has one machine for each label.

    Attributes:
        max_tokens: how many tokens of a text are read, `[CLS]` included.
        frequent_token_ids: the ids of the tokens that n-gram templates keep, increasing; the
            templates replace all other tokens by a wildcard.
        feature_ids: the ids of the features that have weights, increasing, (features,).
        idf: the inverse document frequency of each feature, (features,).
        weights: the weight of each feature in each machine, (features, machines).
        biases: the bias of each machine, (machines,).
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
        """Make a model from weights by name, as `named_weights` returns them.

        Raises:
            ValueError: the feature ids do not increase, or are out of range.
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
        """The numbers from which `linear_shapes` computes the shapes of the weights."""
        return {
            "max_tokens": self.max_tokens,
            "frequent_tokens": len(self.frequent_token_ids),
            "features": len(self.feature_ids),
        }

    def named_weights(self) -> dict[str, Weight]:
        """Return the weights by the names that they have in a model file."""
        return {f"{LINEAR}{name}": getattr(self, name) for name in WEIGHTS}

    def logits(self, texts: TokenizedTexts) -> Logits:
        """Compute the logits of texts, (texts, classes)."""
        logits, _ = self.logits_and_familiarity(texts, with_familiarity=False)
        return logits

    def count_features(self, texts: TokenizedTexts) -> Iterator[Counts]:
        """Yield the counts of the features of texts, for some texts at a time.

        Character n-grams and templates are counted only if the model has weights for them.
        """
        knows_char_ngrams = bool((self.feature_ids[-1:] >= TEMPLATE_IDS).any())
        return count_features(
            texts,
            max_tokens=self.max_tokens,
            frequent_token_ids=self.frequent_token_ids,
            use_char_ngrams=knows_char_ngrams,
        )

    def logits_and_familiarity(
        self, texts: TokenizedTexts, *, with_familiarity: bool = True
    ) -> tuple[Logits, NDArray[np.float64] | None]:
        """Compute the logits of texts, and numbers that show how familiar the texts are.

        Returns:
            The logits, (texts, classes), and the familiarity features of the texts: their
            `_evidence` and then their `rarity`, (texts, `NUM_EVIDENCE_FEATURES +
            NUM_RARITY_FEATURES`). The features are None unless `with_familiarity`.
        """
        rarest = 0.0
        if with_familiarity:
            rarest = float(self.idf.max(initial=0))

        margins = np.tile(self.biases, (len(texts), 1))
        familiarity_features = [np.zeros((0, NUM_EVIDENCE_FEATURES + NUM_RARITY_FEATURES))]
        first = 0
        for counts in self.count_features(texts):
            # Look up the features that occur. An unknown feature has the index -1, which picks the
            # weights of the last feature; its inverse document frequency of 0 cancels them.
            indices = find(counts.ids, self.feature_ids)
            idf = np.where(indices < 0, 0, self.idf[indices])
            weights = self.weights.take(indices)

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
        """Compute the familiarity features of training texts as if the texts were new.

        Features of the lowest document frequency may occur in these texts alone, and would then be
        unknown if the texts were new. So all of them count as unknown.

        Args:
            texts: texts that this model has learned from.
            evidence: the `_evidence` of the texts from a model that has not learned from them,
                (texts, `NUM_EVIDENCE_FEATURES`); by default zeros, which do not count.

        Returns:
            The same features as `logits_and_familiarity`, (texts, `NUM_EVIDENCE_FEATURES +
            NUM_RARITY_FEATURES`).
        """
        rarest = float(self.idf.max(initial=0))
        rarities = [np.zeros((0, NUM_RARITY_FEATURES))]
        for counts in self.count_features(texts):
            indices = find(counts.ids, self.feature_ids)
            idf = np.where(indices < 0, 0, self.idf[indices])
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
    """Add the products of feature values and weights to margins, in place.

    Args:
        margins: the margins to change, (texts, machines).
        values: the TF-IDF values of the features, in the order of `counts.values`, (values,).
        counts: the row and the column of each value.
        weights: the weight of each column in each machine, (columns, machines).
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
    """Return how much each value adds to the margin of its text's best class, (values,).

    Args:
        margins: the margins of the texts, (texts, machines).
        values: the TF-IDF values of the features of all texts, (values,).
        rows: the text of each value, (values,).
        weights: the weight of each column in each machine, (columns, machines).
        columns: the column of each value, (values,).
    """
    best_machines = margins.argmax(axis=1)
    effects: NDArray[np.floating[Any]] = values * weights[columns, best_machines[rows]]

    # A single machine separates two classes: a negative effect speaks for the first class.
    if weights.shape[1] == 1:
        effects *= np.where(margins[rows, 0] < 0, -1, 1)
    return effects


# How many numbers `_evidence` returns for each text.
NUM_EVIDENCE_FEATURES = 2
# Added to a sum of effects, so that its logarithm is finite.
MIN_EVIDENCE = 0.01


def _evidence(
    values: NDArray[np.float32],
    effects: NDArray[np.floating[Any]],
    rows: NDArray[np.int64],
    num_texts: int,
) -> NDArray[np.float64]:
    """Measure how little speaks for the best class of each text, (texts, `NUM_EVIDENCE_FEATURES`).

    The first number is minus the logarithm of the sum of the positive effects. The second is minus
    the share of the features with a positive effect, each weighted by its squared value.

    Args:
        values: the TF-IDF values of the features of all texts, (values,).
        effects: how much each value adds to the margin of its text's best class, (values,).
        rows: the text of each value, (values,).
        num_texts: the number of texts.
    """
    is_positive = effects > 0
    squares = values.astype(np.float64) ** 2

    effect_sums = np.bincount(rows, is_positive * effects, num_texts)
    square_sums = np.bincount(rows, squares, num_texts)
    positive_square_sums = np.bincount(rows, is_positive * squares, num_texts)

    log_effects = np.log(MIN_EVIDENCE + effect_sums)
    shares = positive_square_sums / np.maximum(square_sums, 1e-9)
    return -np.stack([log_effects, shares], axis=1)
