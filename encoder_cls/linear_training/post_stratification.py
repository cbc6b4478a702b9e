"""Weight labelled texts so that they resemble all texts, labelled or not.

Texts that were labelled because a model was unsure of them are harder than others, so the accuracy
on them would be too low.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The maximum number of strata of confidence. Five strata remove about nine tenths of a bias. See
# Cochran, "The Effectiveness of Adjustment by Subclassification", 1968,
# https://doi.org/10.2307/2528036.
MAX_STRATA = 5

# The minimum number of labelled texts for each stratum, on average.
MIN_IN_STRATUM = 20


def weights_like_pool(labelled: Floats, pool: Floats, *, pool_size: int) -> Floats:
    """Weight labelled texts so that confidence in them is distributed as in all texts.

    This is post-stratification: Holt and Smith, "Post Stratification" (1979),
    https://doi.org/10.2307/2344652.

    Confidences are of models that have not learned from the texts; `pool` is a sample of the
    `pool_size` unlabelled ones.

    Returns:
        Weights, with a mean of 1; all are 1 with too few labelled texts for two strata, or no
        others.
    """
    num_strata = min(MAX_STRATA, len(labelled) // MIN_IN_STRATUM)
    if not len(pool) or num_strata < 2:
        return np.ones(len(labelled))

    # A text of the sample represents `pool_size / len(pool)` texts without labels.
    confidence = np.concatenate([labelled, pool])
    num_texts = np.concatenate([np.ones(len(labelled)), np.full(len(pool), pool_size / len(pool))])

    # Find the edges of strata that hold equal shares of all texts.
    order = np.argsort(confidence, kind="stable")
    shares_up_to = np.cumsum(num_texts[order]) / num_texts.sum()
    wanted_shares = np.arange(1, num_strata) / num_strata
    edges = np.interp(wanted_shares, shares_up_to, confidence[order])
    strata = np.searchsorted(edges, confidence)

    # The weight of a text is the share of its stratum among all texts, divided by the share of its
    # stratum among the labelled texts.
    shares_of_all = np.bincount(strata, weights=num_texts, minlength=num_strata) / num_texts.sum()
    labelled_strata = strata[: len(labelled)]
    shares_of_labelled = np.bincount(labelled_strata, minlength=num_strata) / len(labelled)
    weights: Floats = shares_of_all[labelled_strata] / shares_of_labelled[labelled_strata]
    weights /= weights.mean()
    return weights


def effective_size(weights: Floats) -> float:
    """The number of equally weighted texts whose mean is as exact as the weighted one.

    Kish, "Survey Sampling" (1965).
    """
    return float(weights.sum() ** 2 / (weights**2).sum())
