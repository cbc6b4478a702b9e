"""Linear support vector machines are repeatable."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from encoder_cls.linear_training.svm import fit_svm


def test_fits_in_threads_give_the_weights_of_one_after_the_other():
    """liblinear has one random generator per process."""
    random = np.random.default_rng(0)
    features = random.normal(size=(200, 300))
    labels = random.integers(0, 2, 200)
    weights_alone = fit_svm(features, labels, tol=0.01).coef_

    fits = []
    with ThreadPoolExecutor(2) as threads:
        for _ in range(16):
            fits.append(threads.submit(fit_svm, features, labels, tol=0.01))

    for fit in fits:
        weights = fit.result().coef_
        assert np.array_equal(weights, weights_alone)
