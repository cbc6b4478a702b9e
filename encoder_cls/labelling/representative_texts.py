"""Choose texts that represent the pool, above all its texts of which the model is unsure.

A text represents another one as well as it is similar to it. The chosen texts, together with those
that have been labelled, should represent all texts as well as possible, each text by the most
similar one of them; a text counts the more, the more uncertain its prediction is. This is facility
location: Wei, Iyer and Bilmes, "Submodularity in Data Subset Selection and Active Learning" (2015),
https://proceedings.mlr.press/v37/wei15.html. Texts are similar if their coordinates of latent
semantics are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear_training.features import (
    LinearOptions,
    Vocabulary,
    count_matrix,
    count_occurrences,
)
from encoder_cls.linear_training.latent_semantics import find_directions
from encoder_cls.text.tokens import TokenizedTexts

Similarities = NDArray[np.float32]


def text_similarities(
    texts: TokenizedTexts, options: LinearOptions, *, dimensions: int
) -> Similarities:
    """Compute how similar texts are to each other, from 0 to 1, (texts, texts).

    `dimensions` is the maximum number of directions of latent semantics.
    """
    # Compute the TF-IDF values of the features that at least two texts have.
    vocabulary = Vocabulary.of(texts, options)
    pieces = vocabulary.pieces(texts)
    ids, num_texts = count_occurrences(pieces)
    is_shared = num_texts > 1
    vocabulary = vocabulary.with_most_frequent(ids[is_shared], num_texts[is_shared])
    counts = count_matrix(pieces, vocabulary.feature_ids)
    features = vocabulary.with_idf_of(counts).tfidf(counts)

    # Scale the coordinates of each text to length 1; those of a text without features stay 0.
    directions = find_directions(features, vocabulary.feature_ids, dimensions=dimensions)
    coordinates = directions.coordinates(features)
    lengths = np.linalg.norm(coordinates, axis=1, keepdims=True)
    vectors = coordinates / np.where(lengths > 0, lengths, 1)

    # A cosine below 0 means nothing. Each text represents itself.
    similarities: Similarities = np.maximum(vectors @ vectors.T, 0)
    np.fill_diagonal(similarities, 1)
    return similarities


def choose_representatives(
    similarities: Similarities,
    weights: NDArray[np.float64],
    labelled: Sequence[int],
    number: int,
) -> list[int]:
    """Choose at most `number` unlabelled texts that represent most, one after the other.

    `similarities` are from 0 to 1, (texts, texts). `weights` are how much each text counts,
    (texts,), such as the uncertainty of its prediction. Labelled texts represent texts already.
    Texts are given and returned as indices, the most useful first.
    """
    # How similar each text is to the most similar one that is labelled or chosen, (texts,).
    represented = np.zeros(len(similarities), dtype=np.float32)
    for index in labelled:
        represented = np.maximum(represented, similarities[index])

    def gain_of(index: int) -> float:
        """By how much better all texts would be represented with this text."""
        return float(weights @ np.maximum(similarities[index] - represented, 0))

    gains = np.array([gain_of(index) for index in range(len(similarities))])
    gains[list(labelled)] = -1
    num_left = int((gains >= 0).sum())

    chosen: list[int] = []
    while len(chosen) < min(number, num_left):
        # A gain only falls while texts are chosen. So a text whose gain is still the largest after
        # it was computed again is the best one, and the other gains need not be computed (Minoux,
        # "Accelerated Greedy Algorithms for Maximizing Submodular Set Functions", 1978).
        best = int(gains.argmax())
        gains[best] = gain_of(best)
        if gains.argmax() != best:
            continue

        chosen.append(best)
        gains[best] = -1
        represented = np.maximum(represented, similarities[best])
    return chosen
