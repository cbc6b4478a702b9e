"""Latent semantics: directions of features, and weights of coordinates that become weights of features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from encoder_cls.linear import latent_semantics
from encoder_cls.linear.latent_semantics import SCALE, find_directions
from encoder_cls.linear.ngrams import CHAR_NGRAM_IDS, HASHES, TEMPLATE_IDS


def texts(num_texts: int, num_features: int, *, rank: int) -> sp.csr_matrix:
    random = np.random.default_rng(0)
    return sp.csr_matrix(
        (random.random((num_texts, rank)) @ random.random((rank, num_features))).astype(np.float32)
    )


def test_directions_are_the_singular_vectors():
    """Those of the largest singular values, scaled; on texts of that rank they lose nothing."""
    features = texts(30, 20, rank=3)
    _, directions = find_directions(features, np.arange(20, dtype=np.int32), dimensions=3)
    _, _, right = np.linalg.svd(features.toarray())
    assert np.abs(directions.T @ right[:3].T) == pytest.approx(SCALE * np.eye(3), abs=1e-3)
    restored = features @ directions @ directions.T / SCALE**2
    assert restored == pytest.approx(features.toarray(), abs=1e-3)


def test_pairs_templates_and_features_of_a_single_text_are_left_out():
    """Words and character n-grams of two texts stay."""
    ids = np.array(
        [1, 2, HASHES + 1, TEMPLATE_IDS + 1, CHAR_NGRAM_IDS + 1, CHAR_NGRAM_IDS + 2], dtype=np.int32
    )
    features = np.ones((5, 6), dtype=np.float32) + np.arange(5)[:, None] * [0, 1, 0, 1, 0, 1]
    features[1:, 0] = 0
    columns, _ = find_directions(sp.csr_matrix(features, dtype=np.float32), ids, dimensions=2)
    assert columns.tolist() == [1, 4, 5]


def test_directions_are_no_more_than_the_texts_have(monkeypatch):
    """Nor any of one text; of many texts some are enough, and the same ones each time."""
    features, ids = texts(30, 20, rank=10), np.arange(20, dtype=np.int32)
    assert find_directions(features[:4], ids, dimensions=200)[1].shape == (20, 3)
    assert find_directions(features[:1], ids, dimensions=200)[1].size == 0
    monkeypatch.setattr(latent_semantics, "MOST_TEXTS", 10)
    first, second = (find_directions(features, ids, dimensions=3)[1] for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.allclose(
        np.abs(first), np.abs(find_directions(features[:10], ids, dimensions=3)[1])
    )
