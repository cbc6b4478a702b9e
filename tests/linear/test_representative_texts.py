"""Texts are chosen that represent many texts, above all those of which the model is unsure."""

from __future__ import annotations

import numpy as np

from encoder_cls.linear.representative_texts import choose_representatives


def two_groups() -> np.ndarray:
    """Six texts around the first one, three around the seventh one, and one that is alone."""
    similarities = np.zeros((10, 10), dtype=np.float32)
    similarities[:6, :6] = 0.2
    similarities[6:9, 6:9] = 0.2
    for centre, group in ((0, range(6)), (6, range(6, 9))):
        similarities[centre, group] = 0.5
        similarities[group, centre] = 0.5
    np.fill_diagonal(similarities, 1)
    # The dot products of the rows are the similarities.
    return np.linalg.cholesky(similarities)


def test_the_centre_of_the_largest_group_comes_first():
    chosen = choose_representatives(two_groups(), np.ones(10), [], 3)
    assert chosen == [0, 6, 9]


def test_a_group_with_a_label_is_represented():
    chosen = choose_representatives(two_groups(), np.ones(10), [1], 2)
    assert chosen == [6, 0]
    assert choose_representatives(two_groups(), np.ones(10), [0, 6], 1) == [9]


def test_uncertain_texts_count_more():
    uncertainty = np.ones(10)
    uncertainty[:6] = 0.1
    assert choose_representatives(two_groups(), uncertainty, [], 2) == [6, 9]


def test_all_texts_without_a_label_are_chosen_at_last():
    chosen = choose_representatives(two_groups(), np.zeros(10), [4, 7], 100)
    assert sorted(chosen) == [0, 1, 2, 3, 5, 6, 8, 9]


def test_each_choice_is_the_best_one():
    """As if all gains were computed again at each choice."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(40, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarities = np.maximum(vectors @ vectors.T, 0).astype(np.float32)
    weights = random.random(40)

    expected: list[int] = []
    while len(expected) < 12:
        represented = similarities[[3, *expected]].max(axis=0)
        gains = np.maximum(similarities - represented, 0) @ weights
        gains[[3, *expected]] = -1
        expected.append(int(gains.argmax()))
    assert choose_representatives(vectors, weights, [3], 12) == expected
