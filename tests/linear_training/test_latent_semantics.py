"""The directions of latent semantics are those of a singular value decomposition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from encoder_cls.linear.ngrams import CHAR_NGRAM_IDS, HASHES, TEMPLATE_IDS
from encoder_cls.linear_training import latent_semantics
from encoder_cls.linear_training.latent_semantics import SCALE, find_directions

WORD_IDS = np.arange(20, dtype=np.int32)


def features_of_rank(rank: int) -> sp.csr_matrix:
    """Features of thirty texts, each of which is a weighted sum of some patterns of words."""
    random = np.random.default_rng(0)
    weights = random.random((30, rank))
    patterns = random.random((rank, len(WORD_IDS)))
    return sp.csr_matrix((weights @ patterns).astype(np.float32))


def test_directions_are_the_singular_vectors():
    features = features_of_rank(3)
    _, _, singular_vectors = np.linalg.svd(features.toarray())

    directions = find_directions(features, WORD_IDS, dimensions=3)

    cosines = np.abs(directions.vectors.T @ singular_vectors[:3].T)
    assert cosines == pytest.approx(SCALE * np.eye(3), abs=1e-3)


def test_as_many_directions_as_the_rank_of_the_texts_lose_nothing():
    features = features_of_rank(3)

    directions = find_directions(features, WORD_IDS, dimensions=3)

    restored = directions.coordinates(features) @ directions.vectors.T / SCALE**2
    assert restored == pytest.approx(features.toarray(), abs=1e-3)


def test_pairs_templates_and_features_of_a_single_text_are_left_out():
    """Words and character n-grams that at least two texts have are used."""
    word_of_one_text = 1
    word = 2
    pair = HASHES + 1
    template = TEMPLATE_IDS + 1
    first_ngram = CHAR_NGRAM_IDS + 1
    second_ngram = CHAR_NGRAM_IDS + 2
    ids = [word_of_one_text, word, pair, template, first_ngram, second_ngram]

    # Every second feature has a different value in each text.
    features = np.ones((5, 6), dtype=np.float32)
    features[:, 1::2] += np.arange(5)[:, None]
    features[1:, ids.index(word_of_one_text)] = 0

    directions = find_directions(
        sp.csr_matrix(features), np.array(ids, dtype=np.int32), dimensions=2
    )

    used = [ids[column] for column in directions.columns]
    assert used == [word, first_ngram, second_ngram]


@pytest.mark.parametrize(("num_texts", "num_directions"), [(4, 3), (1, 0)])
def test_there_are_fewer_directions_than_texts(num_texts, num_directions):
    features = features_of_rank(10)

    directions = find_directions(features[:num_texts], WORD_IDS, dimensions=200)

    assert directions.vectors.shape[1] == num_directions


def test_directions_of_many_texts_are_those_of_a_sample(monkeypatch):
    """The sample is the same each time, and is drawn from all texts."""
    features = features_of_rank(10)
    monkeypatch.setattr(latent_semantics, "MAX_TEXTS", 10)

    vectors = find_directions(features, WORD_IDS, dimensions=3).vectors
    same_vectors = find_directions(features, WORD_IDS, dimensions=3).vectors
    vectors_of_first_texts = find_directions(features[:10], WORD_IDS, dimensions=3).vectors

    assert np.array_equal(same_vectors, vectors)
    # The signs of directions are arbitrary.
    assert not np.allclose(np.abs(vectors), np.abs(vectors_of_first_texts))
