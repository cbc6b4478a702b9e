"""Plots that stay blank in tests of training, since drawing takes most of a tiny run's time."""

from __future__ import annotations

from matplotlib.figure import Figure

# Functions of `evaluation.matplotlib_figures`.
PLOTS = ("confusion_figure", "reliability_figure")


def blank_plot(*_: object) -> Figure:
    """A small empty figure in place of such a plot."""
    return Figure(figsize=(1, 1))
