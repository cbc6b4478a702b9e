"""Labelled texts are weighted so that they resemble all texts."""

from __future__ import annotations

import numpy as np
import pytest

from encoder_cls.linear_training.post_stratification import effective_size, weights_like_pool


def chosen_texts() -> tuple[np.ndarray, np.ndarray]:
    """Confidences of a pool, and of labelled texts: half of them random, half of them unsure."""
    random = np.random.default_rng(0)
    pool = random.random(4000)
    drawn = random.random(200)
    unsure = 0.3 * random.random(200)
    return pool, np.concatenate([drawn, unsure])


def test_weighted_texts_have_the_confidences_of_all_texts():
    pool, chosen = chosen_texts()
    weights = weights_like_pool(chosen, pool, pool_size=4000)

    assert weights.mean() == pytest.approx(1)
    assert chosen.mean() < 0.36
    assert np.average(chosen, weights=weights) == pytest.approx(0.5, abs=0.03)


def test_weighted_texts_count_as_fewer_texts():
    pool, chosen = chosen_texts()
    weights = weights_like_pool(chosen, pool, pool_size=4000)

    assert 200 < effective_size(weights) < 360
    assert effective_size(np.ones(400)) == pytest.approx(400)


def test_texts_drawn_at_random_weigh_about_the_same():
    pool, chosen = chosen_texts()
    drawn = chosen[:200]

    weights = weights_like_pool(drawn, pool, pool_size=4000)

    assert weights == pytest.approx(np.ones(200), abs=0.3)


def test_if_nearly_all_texts_are_labelled_their_weights_are_about_equal():
    pool, chosen = chosen_texts()

    weights = weights_like_pool(chosen, pool[:40], pool_size=40)

    assert weights == pytest.approx(np.ones(400), abs=0.2)


@pytest.mark.parametrize(("num_labelled", "pool_size"), [(200, 0), (39, 500)])
def test_without_a_pool_or_with_too_few_labels_all_texts_weigh_the_same(num_labelled, pool_size):
    labelled = np.linspace(0, 0.2, num_labelled)
    pool = np.linspace(0, 1, pool_size)

    weights = weights_like_pool(labelled, pool, pool_size=pool_size)

    assert weights.tolist() == [1.0] * num_labelled
