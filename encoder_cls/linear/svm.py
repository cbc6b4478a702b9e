"""A linear support vector machine: scikit-learn's `LinearSVC`, made repeatable."""

from __future__ import annotations

import warnings
from threading import Lock
from typing import Any

from numpy.typing import NDArray

# liblinear has one random generator per process, which another fit at the same time would advance:
# `random_state` alone does not make a fit repeatable.
_LIBLINEAR_LOCK = Lock()


def fit_svm(
    features: Any,
    labels: NDArray[Any],
    *,
    sample_weight: NDArray[Any] | None = None,
    **options: float,
) -> Any:
    """Fit a `LinearSVC`, one at a time, so that equal texts give equal weights.

    Features are (texts, features), labels and weights (texts,).
    """
    # Importing scikit-learn takes most of a second.
    from sklearn import config_context
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    svm = LinearSVC(random_state=0, **options)
    with _LIBLINEAR_LOCK, warnings.catch_warnings():
        # Contradicting labels keep it from converging, and some data has few texts per class.
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes")

        # With few texts, checking the options takes a sixth of the time.
        with config_context(skip_parameter_validation=True):
            return svm.fit(features, labels, sample_weight)
