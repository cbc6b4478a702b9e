"""Log metrics to metrics.jsonl and TensorBoard.

TensorBoard opens with all cards in the order of their names, grouped by what is before the first slash. So names are
chosen for that order: what tells whether a run learns comes first, the F1 of each class last. It draws all curves of a
run in one colour, and curves of one chart must be of several runs to be told apart; so those that are to be compared
within a run (combined, encoder, linear; train, validation) are drawn into a picture, the first card of their group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from encoder_cls.evaluation import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure


import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from encoder_cls.evaluation.metrics import CalibrationBins
from encoder_cls.system.display import json_text, replace_unprintable
from encoder_cls.system.files import reporting_os_errors, write_file
from encoder_cls.tracking.run_dir import EVENT_FILES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCURACY = "accuracy in validation"
MICRO_F1 = "F1 in validation, micro"
LOSS = "loss"
CLASS_F1 = "f1/"  # begins the names of the F1 of classes in a row
# By split and name in a row: what a person looks at. All else is in `metrics.jsonl` alone.
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
# Of these, what only data with several labels a text has.
OF_SEVERAL_LABELS = {"micro_f1", "encoder_micro_f1", "linear_micro_f1", "mean_average_precision", "subset_accuracy"}


def scalar_tag(split: str, name: str) -> str | None:
    """The name under which TensorBoard shows a number of a row; none: it does not."""
    if split == "validation" and name.startswith(CLASS_F1):
        return f"validation F1/{name.removeprefix(CLASS_F1)}"
    return TAGS.get((split, name))


def picture_group(split: str) -> str:
    """The group of pictures that are drawn of a split: those of a run's result are apart from those over time."""
    if split == "validation":
        return split
    return f"result on {split.removeprefix('best_')}"


class Curves:
    """The numbers that pictures of several curves are drawn from, gathered row by row.

    Attributes:
        step: of the newest of them.
    """

    def __init__(self) -> None:
        self.step = 0
        self._drawn_step = -1
        self._points: dict[str, dict[str, list[tuple[int, float]]]] = {ACCURACY: {}, MICRO_F1: {}, LOSS: {}}

    def add(self, row: Mapping[str, Any]) -> None:
        """Gather what is to be drawn of a row."""
        for name, value in row.items():
            group, _, curve = (scalar_tag(row["split"], name) or "").partition("/")
            if group in self._points:
                self._points[group].setdefault(curve, []).append((row["step"], value))
                self.step = row["step"]

    def drawn(self) -> dict[str, Figure]:
        """By name, a picture of each group that has several curves of several points; none twice of one step."""
        if self.step == self._drawn_step:
            return {}
        self._drawn_step = self.step
        return {
            f"{group}/all": plots.curves(curves)
            for group, curves in self._points.items()
            if len(curves) > 1 and max(map(len, curves.values())) > 1
        }


AXES = {"step", "split", "time"}  # no statistics of the data
MOST_CLASSES = 100  # with a curve of their own
PROJECTOR_CONFIG = "projector_config.pbtxt"


class MetricLog:
    """Appends rows to `metrics.jsonl` and shows them in TensorBoard.

    TensorBoard's files are rebuilt from `metrics.jsonl` whenever training goes on, so that its curves and
    images have neither gaps nor overlaps, however often and wherever a run was interrupted.

    Args:
        metrics_file: where the rows go.
        tensorboard: the folder for what TensorBoard's projector reads; none: nothing is shown there. The event file is
            beside it, in the run's folder, since TensorBoard calls a run as the folder of its event file is called.
        resume_after: for each split, in whatever stage (`train` means `pretraining/train`, too), the step after
            which it goes on; what was logged later is removed. None: a new run.
        config_text: the resolved config, shown as text.
        label_names: the classes in the order of confusion matrices.
        warn: told when TensorBoard's files cannot be written; training goes on, and they can be made again.

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
        self._curves = Curves()
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
        self._mirror(lambda writer: writer.add_text("settings", f"```yaml\n{config_text}```"))
        for row in kept:
            self._show(row)

    def log(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Log values of a split at a step.

        Numbers that have a name in `curves` are shown as curves, those of the split `data` as a table;
        `confusion_matrix` and `calibration` (as in `Metrics`) as images, with the row's `label_names` where it has
        some, beside them pictures of the curves so far. All else goes to `metrics.jsonl` alone.

        Raises:
            EncoderClsError: the disk refuses `metrics.jsonl`.
        """
        row = {"step": step, "split": split, "time": round(time.time(), 3), **values}
        rest = memoryview(_line(row).encode())
        with reporting_os_errors(self._metrics_file):
            while rest:
                rest = rest[self._file.write(rest) :]
        self._show(row)

    def image(self, name: str, pixels: NDArray[np.uint8], step: int) -> None:
        """Show an image (height, width, 3) at a step."""
        self._mirror(lambda writer: writer.add_image(name, pixels, step, dataformats="HWC"))

    def text(self, name: str, markdown: str, step: int) -> None:
        """Show a text at a step."""
        self._mirror(lambda writer: writer.add_text(name, markdown, step))

    def pr_curve(self, name: str, is_class: NDArray[np.bool_], probabilities: NDArray[np.float64], step: int) -> None:
        """Show precision against recall of a class at a step."""
        self._mirror(lambda writer: writer.add_pr_curve(name, is_class, probabilities, step))

    def embedding(self, name: str, vectors: NDArray[np.float32], labels: Sequence[str], texts: Sequence[str]) -> None:
        """Show vectors (points, d_model) in space, each with its label and its text.

        Points have one colour until someone chooses another, but their images keep theirs: so the image of each point
        is a square in the colour of its label.
        """
        _, groups = np.unique(labels, return_inverse=True)
        rows = [[_one_line(label), _one_line(text)] for label, text in zip(labels, texts, strict=True)]
        images = torch.from_numpy(plots.colour_squares(groups))
        # The files go into a folder that is called as the step is, so that is the name of the projector's folder here.
        folder = self._tensorboard and self._tensorboard.name
        self._mirror(
            lambda writer: writer.add_embedding(vectors, rows, images, folder, name, metadata_header=["label", "text"])
        )

    def hparams(self, values: Mapping[str, bool | float | str]) -> None:
        """Show what was chosen, and what came of it, in the run itself, so that runs compare in one table.

        What came of it is no metric in the sense of TensorBoard: a metric has to be a curve, here of a single point.
        """

        def show(writer: SummaryWriter) -> None:
            file_writer = writer._get_file_writer()  # type: ignore[no-untyped-call]
            for summary in hparams(dict(values), {}):  # type: ignore[no-untyped-call]
                file_writer.add_summary(summary)  # `add_hparams` would make a run of its own

        self._mirror(show)

    def flush(self) -> None:
        """Make all rows so far durable.

        Raises:
            EncoderClsError: the disk refuses `metrics.jsonl`.
        """
        with reporting_os_errors(self._metrics_file):
            os.fsync(self._file.fileno())
        self._mirror(SummaryWriter.flush)

    def _show(self, row: Mapping[str, Any]) -> None:
        self._mirror(lambda writer: _show_row(writer, row, self._label_names))
        self._curves.add(row)
        if "calibration" in row:
            step, when = self._curves.step, row["time"]
            for name, figure in self._curves.drawn().items():
                self._mirror(partial(_add_figure, name=name, figure=figure, step=step, when=when))

    def _mirror(self, show: Callable[[SummaryWriter], object]) -> None:
        """Show something in TensorBoard, as long as the disk takes it."""
        if self._writer:
            try:
                show(self._writer)
            except OSError as error:
                self._give_up(error)

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
        self._mirror(SummaryWriter.close)
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
    group = picture_group(split)
    if "confusion_matrix" in row:
        figure = plots.confusion(row["confusion_matrix"], row.get("label_names", label_names))
        _add_figure(writer, f"{group}/confusion matrix", figure, step, when)
    if "calibration" in row:
        figure = plots.reliability(CalibrationBins(**row["calibration"]))
        _add_figure(writer, f"{group}/reliability", figure, step, when)


def _data_table(row: Mapping[str, Any]) -> str:
    """A Markdown table of the statistics of the data."""
    statistics = {name.replace("_", " "): value for name, value in row.items() if name not in AXES}
    lines = [
        f"| {name} | {f'{value:,}' if isinstance(value, int) else f'{value:.1%}'} |"
        for name, value in statistics.items()
    ]
    return "\n".join(["| data | |", "| --- | ---: |", *lines])


def _add_figure(writer: SummaryWriter, name: str, figure: Figure, step: int, when: float) -> None:
    """`SummaryWriter.add_figure` would import pyplot, and knows nothing of characters that a font lacks."""
    writer.add_image(name, plots.to_pixels(figure), step, walltime=when, dataformats="HWC")


def _one_line(text: str) -> str:
    """A text as a field of a table whose fields are separated by tabs, and its rows by ends of lines."""
    return replace_unprintable(" ".join(text.split()))


def _ignore(_: threading.ExceptHookArgs) -> None:
    pass


def read_metrics(metrics_file: Path) -> list[dict[str, Any]]:
    """All rows of a `metrics.jsonl`; what is no row, such as a last line that a crash cut short, is left out.

    Raises:
        EncoderClsError: the disk refuses.
    """
    rows = []
    with reporting_os_errors(metrics_file, "read"):
        content = metrics_file.read_text(encoding="utf-8") if metrics_file.exists() else ""
    for line in content.split("\n"):  # `splitlines` would cut at characters that a class name may hold, too
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def _line(row: Mapping[str, Any]) -> str:
    return json_text(row) + "\n"
