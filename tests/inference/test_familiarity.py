"""Texts unlike those of training: what the numbers are, how few of the usual are flagged, and that strange ones are."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.inference.guarantees import FEWEST_TEXTS, Familiarity, text_numbers
from encoder_cls.text.ngrams import CHAR_NGRAM_IDS, RARITY_NUMBERS, SparseRows, count_features, find, rarity


def test_rarity_is_the_mean_idf_and_the_unknown_share_of_each_kind():
    """Of words, pairs, templates and character n-grams; a text without features has zeros."""
    ids = np.array([1, 4, CHAR_NGRAM_IDS + 7], dtype=np.int32)
    idf = np.array([2.0, 5.0, 3.0], dtype=np.float32)
    columns = np.array([1, 2, 4, CHAR_NGRAM_IDS + 7, 1], dtype=np.int32)
    counts = SparseRows(columns=columns, values=np.ones(5, dtype=np.float32), offsets=np.array([0, 4, 4, 5, 5]))
    found = rarity(counts, find(counts, ids), idf)
    assert found.shape == (4, RARITY_NUMBERS)
    np.testing.assert_allclose(found[0], [(2 + 5 + 5) / 3, 0, 0, 3, 1 / 3, 0, 0, 0])
    np.testing.assert_allclose(found[[1, 3]], 0)
    np.testing.assert_allclose(found[2], [2, 0, 0, 0, 0, 0, 0, 0])


def test_rarity_of_real_texts_is_what_a_loop_finds(classifier):
    """Kind by kind and text by text."""
    texts = classifier.tokenize(["rain and snow today", "zzz rain", "", "the team"])
    linear = classifier.linear
    (counts,) = count_features(
        texts, max_tokens=linear.max_tokens, frequent_token_ids=linear.frequent_token_ids, use_char_ngrams=True
    )
    found = linear.read(texts)[1]
    known = dict(zip(linear.feature_ids.tolist(), linear.idf.tolist(), strict=True))
    for row, numbers in enumerate(found):
        columns = counts.columns[counts.offsets[row] : counts.offsets[row + 1]].tolist()
        words = [column for column in columns if column < 1 << 22]
        expected = [known.get(column, max(known.values())) for column in words]
        assert numbers[0] == pytest.approx(np.mean(expected) if words else 0, rel=1e-6)
        assert numbers[4] == pytest.approx(np.mean([column not in known for column in words]) if words else 0)
    np.testing.assert_array_equal(linear.read(texts)[0], linear.logits(texts))


def test_a_hundredth_of_the_usual_texts_is_flagged_and_strange_ones_are():
    """Also where a number is always the same; of few texts nothing is told."""
    random = np.random.default_rng(0)
    numbers = np.hstack([random.normal(size=(500, 3)), np.ones((500, 1)), random.normal(size=(500, 1))])
    familiarity = Familiarity.of(numbers)
    assert familiarity.are_unfamiliar(numbers).sum() == 5
    strange = np.array([[9.0, 9, 9, 1, 0], [-9, -9, -9, 1, -9], [0, 0, 0, 5, 9]])
    assert familiarity.are_unfamiliar(strange).tolist() == [True, False, True]
    read = Familiarity.from_json(familiarity.to_json(), num_numbers=5)
    assert read.are_unfamiliar(numbers).sum() == 5
    assert Familiarity.of(numbers[: FEWEST_TEXTS - 1]) is None
    assert not Familiarity.of(numbers[:50]).are_unfamiliar(numbers[:50]).any()
    with pytest.raises(ValueError, match="other numbers"):
        Familiarity.from_json(familiarity.to_json(), num_numbers=6)


def test_a_certain_answer_is_a_finite_number():
    """Its log odds are limited; without a linear part there are two numbers."""
    found = text_numbers(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.0, 0.25]), None)
    np.testing.assert_allclose(found, [[0, -30], [0.25, 0]], atol=1e-9)
