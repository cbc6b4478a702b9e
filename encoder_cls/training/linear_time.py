"""The time limit of the linear model."""

from __future__ import annotations

import time

from encoder_cls.training.prepared import Prepared

# The share of the remaining time for the linear model, if an encoder follows.
SHARE = 0.5
# The share of the remaining time for the linear model, if only the scores and the report follow.
ALONE_SHARE = 0.6


def end_of_fit(prepared: Prepared) -> float | None:
    """Return when the fit of the linear model must end, a time of `time.monotonic`.

    Returns:
        None without a time limit.
    """
    seconds = prepared.budget.seconds_for(pretraining=False)
    if seconds is None:
        return None
    share = SHARE if prepared.plan.has_encoder else ALONE_SHARE
    return time.monotonic() + share * seconds
