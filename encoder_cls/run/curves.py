"""The curves of trainings as a file, for `compare --curves`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from encoder_cls.errors import ConfigError
from encoder_cls.evaluation.matplotlib_figures import FILE_FORMATS, Curve, curves_figure, to_file
from encoder_cls.metrics.scores import ALL_SCORES
from encoder_cls.run.run_folder import RunDir, read_metrics
from encoder_cls.system.files import write_output
from encoder_cls.system.libraries import PLOTS, check_installed


def check_picture(path: Path, *, option: str) -> None:
    """Raise a `ConfigError`, which names `option`, if a picture cannot be drawn into a file."""
    if path.suffix.lower() not in FILE_FORMATS:
        known = ", ".join(FILE_FORMATS)
        raise ConfigError(f"{option} {path}: unknown ending {path.suffix!r}; name a file: {known}")
    check_installed("matplotlib", needed_by=f"{option} {path}", install=PLOTS)


def write_curves(path: Path, runs: Sequence[Path]) -> None:
    """Draw the losses and the main scores of runs by step.

    Raises:
        ConfigError: no run has trained an encoder, so none has steps.
        EncoderClsError: the file cannot be written.
    """
    curves: dict[str, dict[str, Curve]] = {}
    for run in runs:
        rows = read_metrics(RunDir(run).metrics_file)
        for quantity, curve in _curves_of(rows).items():
            curves.setdefault(quantity, {})[str(run)] = curve
    if not curves:
        raise ConfigError("--curves: no run has trained an encoder, so there are no curves")

    figure = curves_figure(curves)
    write_output(path, to_file(figure, path.suffix.lower()))


def _curves_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    quantities = {"training loss": ("train", "loss"), "validation loss": ("validation", "loss")}
    for score in ALL_SCORES:
        if score.is_main:
            quantities[f"validation {score.name}"] = ("validation", score.key)

    curves: dict[str, Curve] = {}
    for quantity, (split, key) in quantities.items():
        # Step 0 is the linear model, before the encoder has learned.
        shown = [row for row in rows if row["split"] == split and row["step"] and key in row]
        if shown:
            curves[quantity] = ([row["step"] for row in shown], [row[key] for row in shown])
    return curves
