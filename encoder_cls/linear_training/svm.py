"""A linear support vector machine: scikit-learn's `LinearSVC`, made repeatable."""

from __future__ import annotations

import warnings
from threading import Lock
from typing import Any

from numpy.typing import NDArray

# `random_state` alone does not make a fit repeatable: liblinear has only one random generator per
# process, which a fit in another thread would advance. So fits hold this lock.
_LIBLINEAR_LOCK = Lock()


def fit_svm(
    features: Any,
    labels: NDArray[Any],
    *,
    sample_weight: NDArray[Any] | None = None,
    **options: float,
) -> Any:
    """Fit a `LinearSVC` with its options; equal arguments give equal weights in any thread."""
    # Import scikit-learn only here, because the import takes most of a second.
    from sklearn import config_context
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    svm = LinearSVC(random_state=0, **options)
    with _LIBLINEAR_LOCK, warnings.catch_warnings():
        # Neither warning calls for an action: a fit to contradicting labels may not converge, and
        # some data has few texts for each class.
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes")

        # Skip scikit-learn's check of the options: with few texts it takes a sixth of the time.
        with config_context(skip_parameter_validation=True):
            return svm.fit(features, labels, sample_weight)
