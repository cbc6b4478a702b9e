"""Groups of runs, such as those that differ only in their seeds, and tests between groups."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from encoder_cls.errors import ConfigError
from encoder_cls.metrics.scores import Place, Score, scores_shown_in
from encoder_cls.run.compare import RunSummary, runs_of, summarize, without_links_to_others
from encoder_cls.system.json_values import json_text
from encoder_cls.system.libraries import is_installed

# The settings in which the runs of a group may differ.
FREE_SETTINGS = ("seed", "name")


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs, at least one, that share a row of a comparison."""

    name: str
    runs: Sequence[RunSummary]

    @property
    def first(self) -> RunSummary:
        """The first run, whose settings are shown for all."""
        return self.runs[0]

    def mean(self, key: str) -> float | None:
        """The mean of a value; None if no run has it."""
        values = self._values(key)
        return statistics.fmean(values) if values else None

    def deviation(self, key: str) -> float | None:
        """The sample standard deviation of a value; None without two runs that have it."""
        values = self._values(key)
        return statistics.stdev(values) if len(values) > 1 else None

    def p_value(self, other: RunGroup, key: str) -> float | None:
        """The p-value of the hypothesis that the means of a value are equal in both groups.

        It is that of Welch's t-test over the runs: Welch, "The generalization of 'Student's'
        problem when several different population variances are involved" (1947),
        https://doi.org/10.1093/biomet/34.1-2.28. None if a group has fewer than two runs, if the
        runs of both groups do not differ among themselves, or without SciPy.
        """
        deviations = (self.deviation(key), other.deviation(key))
        if None in deviations or deviations == (0, 0) or not is_installed("scipy"):
            return None
        from scipy.stats import ttest_ind_from_stats

        test = ttest_ind_from_stats(
            mean1=self.mean(key),
            std1=self.deviation(key),
            nobs1=len(self._values(key)),
            mean2=other.mean(key),
            std2=other.deviation(key),
            nobs2=len(other._values(key)),
            equal_var=False,
        )
        return float(test.pvalue)

    def _values(self, key: str) -> list[float]:
        return [run[key] for run in self.runs if run[key] is not None]

    def to_dict(self) -> dict[str, Any]:
        """JSON values: the runs, their seeds, and for each score its mean and deviation."""
        seeds = [run["settings"]["seed"] for run in self.runs if run["settings"] is not None]
        values: dict[str, Any] = {
            "name": self.name,
            "runs": [run["run"] for run in self.runs],
            "n": len(self.runs),
            "seeds": seeds,
            "split": self.first["split"],
            "num_examples": self.first["num_examples"],
        }
        for score in scores_shown_in(Place.COMPARE):
            values[score.key] = self.mean(score.key)
            values[f"{score.key}_deviation"] = self.deviation(score.key)
        for key in ("model_bytes", "seconds", "parameters"):
            values[key] = self.mean(key)
        values["settings"] = self.first["settings"]
        return values


def each_run(runs: Sequence[RunSummary]) -> list[RunGroup]:
    """A group of each run."""
    return [RunGroup(name=run["run"], runs=(run,)) for run in runs]


def group_by_settings(runs: Sequence[RunSummary]) -> list[RunGroup]:
    """Group the runs whose settings are equal except for seeds and names.

    One without readable settings is a group by itself.
    """
    runs_by_settings: dict[str, list[RunSummary]] = {}
    for run in runs:
        key = str(run["run"])
        if run["settings"] is not None:
            fixed = {
                name: value for name, value in run["settings"].items() if name not in FREE_SETTINGS
            }
            key = json_text(fixed)
        runs_by_settings.setdefault(key, []).append(run)
    return [RunGroup(name=group[0]["run"], runs=group) for group in runs_by_settings.values()]


def named_group(argument: str) -> RunGroup:
    """A name and the runs that a pattern matches, as in `small=runs/small-*`.

    Raises:
        ConfigError: nothing matches, or a match is no run.
        EncoderClsError: the report of a run cannot be read.
    """
    name, _, pattern = argument.partition("=")
    paths = [run for path in sorted(glob(pattern)) for run in runs_of(Path(path))]  # noqa: PTH207
    paths = without_links_to_others(paths)
    if not name or not paths:
        raise ConfigError(f"{argument}: no run matches {pattern!r} (expected NAME=PATTERN)")
    return RunGroup(name=name, runs=[summarize(path) for path in paths])


def best_of(groups: Sequence[RunGroup], score: Score) -> RunGroup | None:
    """The group with the best mean of a score; None if none has it."""
    scored = [group for group in groups if group.mean(score.key) is not None]
    sign = 1 if score.higher_is_better else -1
    return max(scored, key=lambda group: sign * (group.mean(score.key) or 0), default=None)
