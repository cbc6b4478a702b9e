"""Results over seeds in, means, spreads and standard errors in points of accuracy out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from accuracy_benchmark.plan import Training
from accuracy_benchmark.results import Results

NOT_YET = "not measured"


def found(results: Results, trainings: Sequence[Training]) -> list[float]:
    """The accuracies that there are, in percent."""
    return [100 * results[training].scores.accuracy for training in trainings if training in results]


def mean_and_spread(accuracies: Sequence[float]) -> str:
    """The mean and, of several, the standard deviation."""
    if not accuracies:
        return NOT_YET
    spread = f" ± {statistics.stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
    return f"{statistics.mean(accuracies):.1f}{spread}"


def difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """How far a mean is from another, and the standard error of that, from the spread over seeds."""
    points = f"{statistics.mean(ours) - statistics.mean(theirs):+.1f}"
    if min(len(ours), len(theirs)) < 2:
        return points
    variance = sum(statistics.variance(values) / len(values) for values in (ours, theirs))
    return f"{points} ± {math.sqrt(variance):.1f}"


def binomial_error(accuracy: float, num_test: int) -> float:
    """The standard error of a difference of two accuracies (percent) near this one, as if of two samples of texts."""
    return math.sqrt(2 * accuracy * (100 - accuracy) / num_test)
