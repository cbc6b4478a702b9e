"""Groups of runs that differ in their seeds alone, with means and deviations of their scores."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from encoder_cls.metrics.scores import Place, scores_shown_in
from encoder_cls.run.compare import RunSummary
from encoder_cls.system.json_values import json_text

# The settings in which the runs of a group may differ.
FREE_SETTINGS = ("seed", "name")


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs that share a row of a comparison.

    Attributes:
        runs: the summaries of the runs, at least one, as `summarize` returns them.
    """

    runs: Sequence[RunSummary]

    @property
    def first(self) -> RunSummary:
        """The first run, by which the group is named."""
        return self.runs[0]

    def mean(self, key: str) -> float | None:
        """The mean of a value of the summaries; None if no run has it."""
        values = self._values(key)
        return statistics.fmean(values) if values else None

    def deviation(self, key: str) -> float | None:
        """The sample standard deviation of a value; None if fewer than two runs have it."""
        values = self._values(key)
        return statistics.stdev(values) if len(values) > 1 else None

    def _values(self, key: str) -> list[float]:
        return [run[key] for run in self.runs if run[key] is not None]

    def to_dict(self) -> dict[str, Any]:
        """JSON values: the runs, their seeds, and for each score its mean and deviation."""
        seeds = [run["settings"]["seed"] for run in self.runs if run["settings"] is not None]
        values: dict[str, Any] = {
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
    """Make a group of each run."""
    return [RunGroup(runs=(run,)) for run in runs]


def group_by_settings(runs: Sequence[RunSummary]) -> list[RunGroup]:
    """Group the runs whose settings are equal except for their seeds and names.

    The groups are in the order of their first runs. A run whose settings cannot be read is a group
    by itself.
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
    return [RunGroup(runs=group) for group in runs_by_settings.values()]
