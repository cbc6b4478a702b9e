"""Weight labelled texts so that they resemble the pool of all texts, labelled or not.

Texts that were labelled because a model was unsure of them are harder than others, and would
lower an estimate of accuracy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The strata of confidence: five remove some nine tenths of a bias. Cochran, "The Effectiveness of
# Adjustment by Subclassification" (1968), https://doi.org/10.2307/2528036.
STRATA = 5
# The labelled texts that a stratum has at the least, on average.
MIN_IN_STRATUM = 20


def weights_like_pool(labelled: Floats, pool: Floats, *, pool_size: int) -> Floats:
    """Weight labelled texts so that their confidence is spread as that of all texts.

    This is post-stratification: Holt and Smith, "Post Stratification" (1979),
    https://doi.org/10.2307/2344652.

    Args:
        labelled: the confidence of a model in its prediction for each labelled text, from
            which it has not learned.
        pool: the same of a sample of the texts without labels.
        pool_size: the number of all texts without labels.

    Returns:
        The weight of each labelled text, (texts,); their mean is 1.
    """
    num_strata = min(STRATA, len(labelled) // MIN_IN_STRATUM)
    if not len(pool) or num_strata < 2:
        return np.ones(len(labelled))

    # Each text of the sample represents several texts of the pool.
    confidence = np.concatenate([labelled, pool])
    num_texts = np.concatenate([np.ones(len(labelled)), np.full(len(pool), pool_size / len(pool))])

    # Find the edges of strata that hold equal shares of all texts.
    order = np.argsort(confidence, kind="stable")
    shares_up_to = np.cumsum(num_texts[order]) / num_texts.sum()
    wanted_shares = np.arange(1, num_strata) / num_strata
    edges = np.interp(wanted_shares, shares_up_to, confidence[order])
    strata = np.searchsorted(edges, confidence)

    # A text weighs the share of its stratum in all texts, divided by that in the labelled ones.
    shares_of_all = np.bincount(strata, weights=num_texts, minlength=num_strata) / num_texts.sum()
    labelled_strata = strata[: len(labelled)]
    shares_of_labelled = np.bincount(labelled_strata, minlength=num_strata) / len(labelled)
    weights: Floats = shares_of_all[labelled_strata] / shares_of_labelled[labelled_strata]
    weights /= weights.mean()
    return weights


def effective_size(weights: Floats) -> float:
    """The number of equally weighted texts whose mean is as exact as that of the weighted ones.

    Kish, "Survey Sampling" (1965).
    """
    return float(weights.sum() ** 2 / (weights**2).sum())
