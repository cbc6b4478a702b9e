"""Which rows belong together, and how many independent rows they are worth.

The rows of a split group (copies of a text, the messages of one customer) are likely to be
predicted rightly or wrongly together, so they say less than independent rows: how much less follows
from their intraclass correlation, 0 where they are as independent as any, 1 where all rows of a
group are alike. Kish, "Survey Sampling" (1965), chapter 5; Donner, "A Review of Inference
Procedures for the Intraclass Correlation Coefficient" (1986), https://doi.org/10.2307/1403259.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class RowGroups:
    """The rows of a data set, in groups of rows that belong together."""

    def __init__(self, split_groups: NDArray[np.int64]) -> None:
        """Number the groups of rows from 0, by numbers that are equal in a group, (rows,)."""
        _, self.numbers, self.sizes = np.unique(
            split_groups, return_inverse=True, return_counts=True
        )

    @classmethod
    def single(cls, num_rows: int) -> RowGroups:
        """Rows that are each a group of their own, and so independent."""
        return cls(np.arange(num_rows))

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.numbers)

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return len(self.sizes)

    @property
    def are_single(self) -> bool:
        """Whether each row is a group of its own."""
        return self.num_groups == self.num_rows

    def subset(self, rows: NDArray[Any]) -> RowGroups:
        """The groups of some of the rows, given as their indices or as a mask."""
        return RowGroups(self.numbers[rows])

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum values of rows, (rows,) or (rows, columns), over each group, (groups, ...)."""
        if values.dtype == np.bool_:
            values = values.astype(np.int64)
        if self.are_single:
            in_order = np.empty_like(values)
            in_order[self.numbers] = values
            return in_order
        order = np.argsort(self.numbers, kind="stable")
        starts = np.cumsum(self.sizes) - self.sizes
        sums: NDArray[Any] = np.add.reduceat(values[order], starts, axis=0)
        return sums

    @cached_property
    def _squared_sizes(self) -> float:
        return float((self.sizes.astype(np.float64) ** 2).sum())

    def correlation(self, values: NDArray[Any]) -> float:
        """Estimate the intraclass correlation of values, (rows,), by analysis of variance.

        It lies between 0 and 1, and is 1 as well where the values cannot show it: in one group, or
        if all are equal.
        """
        if self.num_groups == 1 or self.are_single:
            return float(not self.are_single)

        deviations = np.asarray(values, dtype=np.float64) - np.mean(values)
        total = float((deviations**2).sum())
        if total == 0:
            return 1.0

        between = float((self.sums(deviations) ** 2 / self.sizes).sum())
        mean_between = between / (self.num_groups - 1)
        mean_within = max(0.0, total - between) / (self.num_rows - self.num_groups)

        # The size of groups, as it counts in the expected value of `mean_between`.
        size = (self.num_rows - self._squared_sizes / self.num_rows) / (self.num_groups - 1)
        correlation = (mean_between - mean_within) / (mean_between + (size - 1) * mean_within)
        return min(1.0, max(0.0, correlation))

    def weights(self, correlation: float = 1.0) -> Floats:
        """How much each row counts, (rows,), such that a group counts as its independent rows."""
        sizes = self.sizes[self.numbers].astype(np.float64)
        return 1.0 / (1.0 + correlation * (sizes - 1.0))

    def effective_number(self, values: NDArray[Any]) -> float:
        """The number of independent rows whose mean is as exact as that of `values`, (rows,).

        It is `num_rows` where every row is a group of its own, and never more. Few groups show
        badly how much variance they add, so it counts by the quantiles of Student's t: Korn and
        Graubard, "Confidence Intervals for Proportions With Small Expected Number of Positive
        Counts Estimated From Survey Data" (1998). A simulation of the intervals that follow:
        docs/experiments/accuracy.md#rows-that-belong-together.
        """
        if self.are_single:
            return float(self.num_rows)
        from scipy.special import stdtrit

        # Kish's number of independent rows where all rows of a group are alike.
        num_alike = self.num_rows**2 / self._squared_sizes
        variance_ratio = min(self._variance_ratio(values), self.num_rows / num_alike)

        quantile = stdtrit(max(1.0, num_alike - 1), 0.975)
        uncertainty = (quantile / stdtrit(np.inf, 0.975)) ** 2
        return float(self.num_rows / (1.0 + (variance_ratio - 1.0) * uncertainty))

    def _variance_ratio(self, values: NDArray[Any]) -> float:
        """The variance of the mean, relative to that of independent rows.

        The larger of two estimates: by the intraclass correlation, and by the sums of the groups,
        which show it where large groups are more alike than small ones.
        """
        mean_size = self._squared_sizes / self.num_rows
        by_correlation = 1.0 + self.correlation(values) * (mean_size - 1.0)

        deviations = np.asarray(values, dtype=np.float64) - np.mean(values)
        total = float((deviations**2).sum())
        if total == 0 or self.num_groups == 1:
            return by_correlation
        by_sums = float((self.sums(deviations) ** 2).sum()) / total
        by_sums *= self.num_groups / (self.num_groups - 1)
        return max(by_correlation, by_sums)
