"""Log metrics to metrics.jsonl and TensorBoard.

TensorBoard opens with all cards in the order of their names, grouped by what is before the first slash. So names are
chosen for that order: scores that show whether a run learns come first, the F1 of each class last.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from encoder_cls.evaluation import plots
from encoder_cls.evaluation.metrics import CalibrationBins
from encoder_cls.system.display import json_text
from encoder_cls.system.files import reporting_os_errors, write_file
from encoder_cls.tracking.rows import read_metrics
from encoder_cls.tracking.run_dir import EVENT_FILES

ACCURACY = "accuracy in validation"
MICRO_F1 = "F1 in validation, micro"
LOSS = "loss"
CLASS_F1 = "f1/"  # begins the names of the F1 of classes in a row
# By split and name in a row: the numbers that TensorBoard shows. All others are in `metrics.jsonl` alone.
TAGS = {
    ("validation", "micro_f1"): f"{MICRO_F1}/combined",  # of multi-label data, which has no accuracy
    ("validation", "encoder_micro_f1"): f"{MICRO_F1}/encoder",
    ("validation", "linear_micro_f1"): f"{MICRO_F1}/linear",
    ("validation", "accuracy"): f"{ACCURACY}/combined",
    ("validation", "encoder_accuracy"): f"{ACCURACY}/encoder",
    ("validation", "linear_accuracy"): f"{ACCURACY}/linear",
    ("train", "loss"): f"{LOSS}/train",
    ("validation", "loss"): f"{LOSS}/validation",
    ("pretraining/train", "loss"): "pretraining/loss in training",
    ("pretraining/validation", "loss"): "pretraining/loss in validation",
    ("pretraining/validation", "accuracy"): "pretraining/masked tokens guessed right",
    ("train", "grad_norm"): "training/gradient norm",
    ("train", "learning_rate"): "training/learning rate",
    ("train", "tokens_per_s"): "training/tokens per second",
    ("validation", "ece"): "validation/calibration error",
    ("validation", "macro_f1"): "validation/macro F1",
    ("validation", "mean_average_precision"): "validation/mean average precision",
    ("validation", "subset_accuracy"): "validation/all labels right",
    ("validation", "linear_weight"): "validation/weight of the linear classifier",
}
# Of these, those of data with several labels a text alone.
OF_SEVERAL_LABELS = {"micro_f1", "encoder_micro_f1", "linear_micro_f1", "mean_average_precision", "subset_accuracy"}


AXES = {"step", "split", "time"}  # no statistics of the data
MOST_CLASSES = 100  # with a curve of their own
PROJECTOR_CONFIG = "projector_config.pbtxt"


def scalar_tag(split: str, name: str) -> str | None:
    """The name of a number of a row in TensorBoard; None where it does not show it."""
    if split == "validation" and name.startswith(CLASS_F1):
        return f"validation F1/{name.removeprefix(CLASS_F1)}"
    return TAGS.get((split, name))


def picture_group(split: str) -> str:
    """The group of a split's pictures: those of a run's result are apart from those over time."""
    if split == "validation":
        return split
    return f"result on {split.removeprefix('best_')}"


class MetricLog:
    """Appends rows to `metrics.jsonl` and shows them in TensorBoard.

    TensorBoard's files are rebuilt from `metrics.jsonl` whenever training goes on, so that its curves and
    images have neither gaps nor overlaps, however often and wherever a run was interrupted.

    Args:
        metrics_file: where the rows go.
        tensorboard: the folder for TensorBoard's projector; None: nothing is shown. The event file is beside it, in the
            run's folder, since TensorBoard names a run after the folder of its event file.
        resume_after: the step after which each split goes on, in any stage (`train` means `pretraining/train`, too);
            later rows are removed. None: a new run.
        config_text: the resolved config, shown as text.
        label_names: the classes in the order of confusion matrices.
        warn: called when TensorBoard's files cannot be written; training goes on, and they can be made again.

    Raises:
        EncoderClsError: the disk refuses `metrics.jsonl`.
    """

    def __init__(
        self,
        *,
        metrics_file: Path,
        tensorboard: Path | None,
        resume_after: dict[str, int] | None,
        config_text: str,
        label_names: Sequence[str],
        warn: Callable[[str], None],
    ) -> None:
        last_steps = resume_after or {}
        kept = [
            row
            for row in read_metrics(metrics_file)
            if row["step"] <= last_steps.get(row["split"].rpartition("/")[2], -1)
        ]
        write_file(metrics_file, "".join(_line(row) for row in kept).encode())
        with reporting_os_errors(metrics_file):
            # Not buffered: what the disk refused must not be tried again when the file is closed.
            self._file = metrics_file.open("ab", buffering=0)
        self._metrics_file, self._tensorboard, self._warn = metrics_file, tensorboard, warn
        self._label_names = label_names
        self._writer: SummaryWriter | None = None
        # Its thread dies of an error, with a traceback for the user, and the next call here raises the same.
        self._former_hook, threading.excepthook = threading.excepthook, _ignore
        if tensorboard:
            shutil.rmtree(tensorboard, ignore_errors=True)
            try:
                for former in (*tensorboard.parent.glob(EVENT_FILES), tensorboard.parent / PROJECTOR_CONFIG):
                    former.unlink(missing_ok=True)
                # purge_step makes a TensorBoard that is already looking forget what it saw of the former files.
                self._writer = SummaryWriter(str(tensorboard.parent), purge_step=0)
            except OSError as error:
                self._give_up(error)
        self.show(lambda writer: writer.add_text("settings", f"```yaml\n{config_text}```"))
        for row in kept:
            self._show(row)

    def log(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Log values of a split at a step.

        Numbers with a `scalar_tag` are shown as curves, those of the split `data` as a table; `confusion_matrix` and
        `calibration` (as in `Metrics`) as images, with the row's `label_names` where it has some.

        Raises:
            EncoderClsError: the disk refuses `metrics.jsonl`.
        """
        row = {"step": step, "split": split, "time": round(time.time(), 3), **values}
        rest = memoryview(_line(row).encode())
        with reporting_os_errors(self._metrics_file):
            while rest:
                rest = rest[self._file.write(rest) :]
        self._show(row)

    def show(self, add: Callable[[SummaryWriter], object]) -> None:
        """Add something to TensorBoard alone, as long as the disk takes it."""
        if self._writer:
            try:
                add(self._writer)
            except OSError as error:
                self._give_up(error)

    def hparams(self, values: Mapping[str, bool | float | str]) -> None:
        """Show settings and scores in the run itself, so that runs compare in one table.

        Scores are no metrics in the sense of TensorBoard: a metric has to be a curve, here of a single point.
        """

        def add(writer: SummaryWriter) -> None:
            file_writer = writer._get_file_writer()  # type: ignore[no-untyped-call]
            for summary in hparams(dict(values), {}):  # type: ignore[no-untyped-call]
                file_writer.add_summary(summary)  # `add_hparams` would make a run of its own

        self.show(add)

    def flush(self) -> None:
        """Make all rows so far durable.

        Raises:
            EncoderClsError: the disk refuses `metrics.jsonl`.
        """
        with reporting_os_errors(self._metrics_file):
            os.fsync(self._file.fileno())
        self.show(SummaryWriter.flush)

    def _show(self, row: Mapping[str, Any]) -> None:
        self.show(lambda writer: _show_row(writer, row, self._label_names))

    def _give_up(self, error: OSError) -> None:
        self._writer = None
        self._warn(
            f"{error.filename or self._metrics_file.parent}: cannot write: {error.strerror or error}; training goes on "
            f"without TensorBoard ({self._metrics_file} has every number)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self.show(SummaryWriter.close)
        threading.excepthook = self._former_hook


def _show_row(writer: SummaryWriter, row: Mapping[str, Any], label_names: Sequence[str]) -> None:
    split, step, when = row["split"], row["step"], row["time"]
    if split == "data":
        writer.add_text("data", _data_table(row), step, walltime=when)
        return
    for name, value in row.items():
        tag = scalar_tag(split, name)
        if tag and (len(label_names) <= MOST_CLASSES or not name.startswith(CLASS_F1)):
            writer.add_scalar(tag, value, step, walltime=when)
    figures = {}
    if "confusion_matrix" in row:
        names = row.get("label_names", label_names)
        figures["confusion matrix"] = plots.confusion(row["confusion_matrix"], names)
    if "calibration" in row:
        figures["reliability"] = plots.reliability(CalibrationBins(**row["calibration"]))
    for name, figure in figures.items():
        # `SummaryWriter.add_figure` would import pyplot, and knows nothing of characters that a font lacks.
        pixels = plots.to_pixels(figure)
        writer.add_image(f"{picture_group(split)}/{name}", pixels, step, walltime=when, dataformats="HWC")


def _data_table(row: Mapping[str, Any]) -> str:
    """A Markdown table of the statistics of the data."""
    statistics = {name.replace("_", " "): value for name, value in row.items() if name not in AXES}
    lines = [
        f"| {name} | {f'{value:,}' if isinstance(value, int) else f'{value:.1%}'} |"
        for name, value in statistics.items()
    ]
    return "\n".join(["| data | |", "| --- | ---: |", *lines])


def _ignore(_: threading.ExceptHookArgs) -> None:
    pass


def _line(row: Mapping[str, Any]) -> str:
    return json_text(row) + "\n"
