"""Log metrics to metrics.jsonl and TensorBoard.

TensorBoard sorts its cards by name, and groups them by the part before the first slash. The names here put scores that
show whether a run learns first, and the F1 of each class last.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.config.schema import Config
from encoder_cls.evaluation import charts, figures
from encoder_cls.evaluation.files import SCORE_NAMES
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_text import summary_text
from encoder_cls.metrics.classification import CalibrationBins
from encoder_cls.run.run_folder import PROJECTOR_FOLDER, RunDir, read_metrics
from encoder_cls.system.display import json_text, markdown_text, replace_unprintable, shortened
from encoder_cls.system.files import reporting_os_errors, write_file

ACCURACY = "accuracy in validation"
MICRO_F1 = "F1 in validation, micro"
LOSS = "loss"
CLASS_F1 = "f1/"  # the prefix of the F1 of each class in a row
# The numbers that TensorBoard shows, by split and name; `metrics.jsonl` has all.
TAGS = {
    (
        "validation",
        "micro_f1",
    ): f"{MICRO_F1}/combined",  # of multi-label data, which has no accuracy
    ("validation", "encoder_micro_f1"): f"{MICRO_F1}/encoder",
    ("validation", "linear_micro_f1"): f"{MICRO_F1}/linear",
    ("validation", "accuracy"): f"{ACCURACY}/combined",
    ("validation", "encoder_accuracy"): f"{ACCURACY}/encoder",
    ("validation", "linear_accuracy"): f"{ACCURACY}/linear",
    ("train", "loss"): f"{LOSS}/train",
    ("validation", "loss"): f"{LOSS}/validation",
    ("pretraining/train", "loss"): "pretraining/loss in training",
    ("pretraining/validation", "loss"): "pretraining/loss in validation",
    ("train", "grad_norm"): "training/gradient norm",
    ("train", "learning_rate"): "training/learning rate",
    ("train", "tokens_per_s"): "training/tokens per second",
    ("validation", "ece"): "validation/calibration error",
    ("validation", "macro_f1"): "validation/macro F1",
    ("validation", "mean_average_precision"): "validation/mean average precision",
    ("validation", "subset_accuracy"): "validation/all labels right",
    ("validation", "linear_weight"): "validation/weight of the linear classifier",
}
# The scores by which TensorBoard compares runs; their names sort before those of settings.
SCORES = {**SCORE_NAMES, "ece": "calibration error"}
# Settings that are compared in any case, beside the changed ones.
ALWAYS_COMPARED = {
    "model.d_model",
    "model.num_layers",
    "train.learning_rate",
}
AXES = {"step", "split", "time"}  # the values of a row that are not measured
MOST_CLASSES = 100  # whose F1 in validation is drawn
MOST_CURVES = 12  # of precision and recall
MOST_POINTS = 2000  # texts in the projector
MOST_CHARACTERS = 70  # of a mistake's text; `report.html` has all
PROJECTOR_CONFIG = "projector_config.pbtxt"


class MetricLog:
    """Appends rows to `metrics.jsonl` and shows them in TensorBoard.

    TensorBoard's files are rebuilt from `metrics.jsonl` whenever training is resumed: so its curves and images have
    neither gaps nor overlaps. The event file lies in the run folder itself, after which TensorBoard names the run.

    Rows of a split after its step in `resume_after` are removed (`train` includes `pretraining/train`), and all rows of
    other splits. `warn` is called once if TensorBoard's files cannot be written; training goes on. The constructor,
    `log` and `flush` raise an `EncoderClsError` if `metrics.jsonl` cannot be written.
    """

    def __init__(
        self,
        run: RunDir,
        config: Config,
        label_names: Sequence[str],
        *,
        resume_after: Mapping[str, int],
        warn: Callable[[str], None],
        with_tensorboard: bool = True,
    ) -> None:
        self._metrics_file, self._label_names, self._warn = run.metrics_file, label_names, warn
        rows = read_metrics(run.metrics_file)
        kept = [
            row
            for row in rows
            if row["step"] <= resume_after.get(row["split"].rpartition("/")[2], -1)
        ]
        write_file(run.metrics_file, "".join(_line(row) for row in kept).encode())
        self._writer: SummaryWriter | None = None
        # An error would print a traceback of the writer's thread; the next call here raises the same error.
        self._earlier_hook, threading.excepthook = threading.excepthook, lambda _: None
        if with_tensorboard:
            shutil.rmtree(run.tensorboard, ignore_errors=True)
            try:
                for old in (*run.event_files, run.path / PROJECTOR_CONFIG):
                    old.unlink(missing_ok=True)
                # purge_step makes a running TensorBoard forget the contents of the old files.
                self._writer = SummaryWriter(str(run.path), purge_step=0)
            except OSError as error:
                self._give_up(error)
        self.show(lambda writer: writer.add_text("settings", f"```yaml\n{config.to_yaml()}```"))
        for row in kept:
            self.show(partial(_show_row, row, self._label_names))

    def log(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Log values of a split at a step.

        TensorBoard shows numbers in `TAGS` and the F1 of classes as curves, the split `data` as a table, and
        `confusion_matrix` and `calibration`, as in `Metrics`, as images, with the row's own `label_names` if given.
        """
        row = {"step": step, "split": split, "time": round(time.time(), 3), **values}
        with reporting_os_errors(self._metrics_file), self._metrics_file.open("ab") as file:
            file.write(_line(row).encode())
        self.show(partial(_show_row, row, self._label_names))

    def show(self, add: Callable[[SummaryWriter], object]) -> None:
        """Add something to TensorBoard only, until its files cannot be written."""
        if self._writer:
            try:
                add(self._writer)
            except OSError as error:
                self._give_up(error)

    def hparams(self, values: Mapping[str, bool | float | str]) -> None:
        """Show settings and scores in TensorBoard's table of all runs.

        Scores are not passed as metrics, which TensorBoard would draw as curves of one point. No run declares columns
        of the table: TensorBoard would take those of the first run for all.
        """

        def add(writer: SummaryWriter) -> None:
            file_writer = writer._get_file_writer()  # type: ignore[no-untyped-call]
            for summary in hparams(dict(values), {})[1:]:  # type: ignore[no-untyped-call]
                # `SummaryWriter.add_hparams` would start another run.
                file_writer.add_summary(summary)

        self.show(add)

    def flush(self) -> None:
        """Make all rows so far durable."""
        with reporting_os_errors(self._metrics_file), self._metrics_file.open("ab") as file:
            os.fsync(file.fileno())
        self.show(SummaryWriter.flush)

    def _give_up(self, error: OSError) -> None:
        self._writer = None
        self._warn(
            f"{error.filename or self._metrics_file.parent}: cannot write: {error.strerror or error}; training goes on "
            f"without TensorBoard ({self._metrics_file} has every number)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.show(SummaryWriter.close)
        threading.excepthook = self._earlier_hook


def _show_row(row: Mapping[str, Any], label_names: Sequence[str], writer: SummaryWriter) -> None:
    split, step, when = row["split"], row["step"], row["time"]
    if split == "data":
        table = ["| data | |", "| --- | ---: |"]
        for name, value in row.items():
            if name not in AXES:
                shown = f"{value:,}" if isinstance(value, int) else f"{value:.1%}"
                table.append(f"| {name.replace('_', ' ')} | {shown} |")
        writer.add_text("data", "\n".join(table), step, walltime=when)
        return
    for name, value in row.items():
        tag = TAGS.get((split, name))
        if split == "validation" and name.startswith(CLASS_F1) and len(label_names) <= MOST_CLASSES:
            tag = f"validation F1/{name.removeprefix(CLASS_F1)}"
        if tag:
            writer.add_scalar(tag, value, step, walltime=when)
    pictures = {}
    if "confusion_matrix" in row:
        names = row.get("label_names", label_names)
        pictures["confusion matrix"] = figures.confusion_figure(row["confusion_matrix"], names)
    if "calibration" in row:
        pictures["reliability"] = figures.reliability_figure(CalibrationBins(**row["calibration"]))
    # Images of the final result have their own group.
    group = split if split == "validation" else f"result on {split.removeprefix('best_')}"
    for name, picture in pictures.items():
        # `SummaryWriter.add_figure` would import pyplot, and warn of characters that a font lacks.
        pixels = figures.to_pixels(picture)
        writer.add_image(f"{group}/{name}", pixels, step, walltime=when, dataformats="HWC")


def _line(row: Mapping[str, Any]) -> str:
    return json_text(row) + "\n"


def log_final_report(
    metric_log: MetricLog, classifier: Classifier, config: Config, report: Report, *, step: int
) -> None:
    """Show a report and its classifier at the step of its best validation."""
    scalars = report.metrics.scalars()
    scores = {name: scalars[key] for key, name in SCORES.items() if key in scalars}
    metric_log.hparams({**scores, **chosen_settings(config)})
    # Preformatted, in Markdown.
    summary = "\n".join(f"    {line}" for line in summary_text(report).splitlines())

    def show(writer: SummaryWriter) -> None:
        writer.add_text("result", summary, step)
        writer.add_text("most confident mistakes", mistakes_table(report), step)
        add_precision_recall(writer, report, step)
        if classifier.encoder:
            split = report.answered.split
            chosen = np.random.default_rng(0).permutation(len(split))[:MOST_POINTS].tolist()
            texts = [split.texts[row] for row in chosen]
            labels = [split.label_text(row, report.label_names) for row in chosen]
            add_embedding(
                writer,
                classifier.embed(texts, batch_tokens=config.train.batch_tokens),
                labels,
                texts,
            )

    metric_log.show(show)


def add_embedding(
    writer: SummaryWriter, vectors: NDArray[np.float32], labels: Sequence[str], texts: Sequence[str]
) -> None:
    """Show vectors (points, d_model) in the projector, each with its label and its text.

    The projector draws all points in one colour unless a person chooses, but images as they are: so the image of each
    point is a square in the colour of its label.
    """
    _, groups = np.unique(labels, return_inverse=True)
    # Fields are separated by tabs, rows by line ends.
    rows = [
        [replace_unprintable(" ".join(it.split())) for it in row]
        for row in zip(labels, texts, strict=True)
    ]
    images = torch.from_numpy(figures.colour_squares(groups))
    # The fourth argument, the step, names the folder of its files.
    writer.add_embedding(
        vectors, rows, images, PROJECTOR_FOLDER, "texts", metadata_header=["label", "text"]
    )


def add_precision_recall(writer: SummaryWriter, report: Report, step: int) -> None:
    """Show precision-recall curves of the rarest and the worst classes."""
    probabilities, labels = report.answered.probabilities, report.answered.labels
    num_classes = probabilities.shape[1]
    chosen, note = charts.notable_classes(
        report.metrics.per_class, MOST_CURVES, num_classes=num_classes
    )
    for number in chosen:
        is_class = labels[:, number] if labels.ndim > 1 else labels == number
        name = f"precision and recall/{report.label_names[number]}"
        writer.add_pr_curve(name, is_class, probabilities[:, number], step)
    if note:
        writer.add_text("precision and recall", note, step)


def chosen_settings(config: Config) -> dict[str, bool | float | str]:
    """Settings by dotted key, without the data: `ALWAYS_COMPARED`, and those that are not the default."""
    chosen: dict[str, bool | float | str] = {"seed": config.seed}
    for name in ("tokenizer", "model", "pretrain", "train"):
        section = getattr(config, name)
        defaults = type(section)().model_dump()
        for key, value in section.model_dump().items():
            if f"{name}.{key}" in ALWAYS_COMPARED or value != defaults[key]:
                chosen[f"{name}.{key}"] = (
                    value if isinstance(value, bool | int | float | str) else str(value)
                )
    return chosen


def mistakes_table(report: Report) -> str:
    """The most confident mistakes as a Markdown table, with all markup in their texts escaped."""
    rows = ["| answer | label | text |", "| --- | --- | --- |"]
    for error in report.worst_errors:
        # A longer text would make the other columns so narrow that names break at any letter.
        text = shortened(error.text, limit=MOST_CHARACTERS)
        cells = (
            f"{error.kind} {error.answer} {error.probability:.2f}".strip(),
            ", ".join(error.labels),
            text,
        )
        rows.append("| " + " | ".join(markdown_text(cell) for cell in cells) + " |")
    return "\n".join(rows)
