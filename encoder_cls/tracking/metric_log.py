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
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from encoder_cls.config import Config
from encoder_cls.evaluation import charts
from encoder_cls.evaluation.metrics import CalibrationBins
from encoder_cls.evaluation.mistakes import Answered
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_text import summary_text
from encoder_cls.inference.classifier import Classifier
from encoder_cls.system.display import json_text, markdown_text, replace_unprintable, shortened
from encoder_cls.system.files import reporting_os_errors, write_file
from encoder_cls.tracking.run_dir import EVENT_FILES, PROJECTOR_FOLDER, RunDir, read_metrics

ACCURACY = "accuracy in validation"
MICRO_F1 = "F1 in validation, micro"
LOSS = "loss"
CLASS_F1 = "f1/"  # the prefix of the F1 of classes in a row
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
# The scores that runs are compared by, by names that come before those of settings.
SCORES = {
    "accuracy": "accuracy",
    "ece": "calibration error",
    "loss": "loss",
    "macro_f1": "macro F1",
    "mean_average_precision": "mean average precision",
    "micro_f1": "micro F1",
}
ALWAYS_COMPARED = {"model.d_model", "model.num_layers", "train.learning_rate"}  # by settings, changed or not
AXES = {"step", "split", "time"}  # no statistics of the data
MOST_CLASSES = 100  # whose F1 in validation has a curve
MOST_CURVES = 12  # of precision and recall: classes
MOST_POINTS = 2000  # texts in the projector
MOST_CHARACTERS = 70  # of a mistake; `report.html` has all
PROJECTOR_CONFIG = "projector_config.pbtxt"


class MetricLog:
    """Appends rows to `metrics.jsonl` and shows them in TensorBoard.

    TensorBoard's files are rebuilt from `metrics.jsonl` whenever training goes on, so that its curves and images have
    neither gaps nor overlaps, however often and wherever a run was interrupted. Its event file is directly in the run's
    folder, since TensorBoard names a run after that.

    Rows of a split after its step in `resume_after` are removed, in any stage (`train` means `pretraining/train`, too);
    of a new run, with None, all are. `warn` is called where TensorBoard's files cannot be written; training goes on.
    Creating it, `log` and `flush` raise an `EncoderClsError` where the disk refuses `metrics.jsonl`.
    """

    def __init__(
        self,
        run: RunDir,
        config: Config,
        label_names: Sequence[str],
        *,
        resume_after: Mapping[str, int] | None,
        warn: Callable[[str], None],
        with_tensorboard: bool = True,
    ) -> None:
        self._metrics_file, self._label_names, self._warn = run.metrics_file, label_names, warn
        last_steps = resume_after or {}
        kept = [
            row
            for row in read_metrics(run.metrics_file)
            if row["step"] <= last_steps.get(row["split"].rpartition("/")[2], -1)
        ]
        write_file(run.metrics_file, "".join(_line(row) for row in kept).encode())
        with reporting_os_errors(run.metrics_file):
            # Not buffered: what the disk refused must not be tried again when the file is closed.
            self._file = run.metrics_file.open("ab", buffering=0)
        self._writer: SummaryWriter | None = None
        # Its thread dies of an error, with a traceback for the user, and the next call here raises the same.
        self._earlier_hook, threading.excepthook = threading.excepthook, lambda _: None
        if with_tensorboard:
            shutil.rmtree(run.tensorboard, ignore_errors=True)
            try:
                for old in (*run.path.glob(EVENT_FILES), run.path / PROJECTOR_CONFIG):
                    old.unlink(missing_ok=True)
                # purge_step makes a TensorBoard that is already looking forget what it saw of the old files.
                self._writer = SummaryWriter(str(run.path), purge_step=0)
            except OSError as error:
                self._give_up(error)
        self.show(lambda writer: writer.add_text("settings", f"```yaml\n{config.to_yaml()}```"))
        for row in kept:
            self.show(partial(_show_row, row, self._label_names))

    def log(self, step: int, split: str, values: Mapping[str, Any]) -> None:
        """Log values of a split at a step.

        Numbers in `TAGS` and the F1 of classes are shown as curves, those of the split `data` as a table;
        `confusion_matrix` and `calibration` (as in `Metrics`) as images, with the row's `label_names` if it has some.
        """
        row = {"step": step, "split": split, "time": round(time.time(), 3), **values}
        rest = memoryview(_line(row).encode())
        with reporting_os_errors(self._metrics_file):
            while rest:
                rest = rest[self._file.write(rest) :]
        self.show(partial(_show_row, row, self._label_names))

    def show(self, add: Callable[[SummaryWriter], object]) -> None:
        """Add something to TensorBoard alone, as long as the disk takes it."""
        if self._writer:
            try:
                add(self._writer)
            except OSError as error:
                self._give_up(error)

    def hparams(self, values: Mapping[str, bool | float | str]) -> None:
        """Show settings and scores in one table of all runs.

        Scores are no metrics in the sense of TensorBoard: a metric has to be a curve, here of a single point. No run
        describes the columns of the table: TensorBoard would take those of the first one, a trial's beside runs.
        """

        def add(writer: SummaryWriter) -> None:
            file_writer = writer._get_file_writer()  # type: ignore[no-untyped-call]
            _, *of_run = hparams(dict(values), {})  # type: ignore[no-untyped-call]
            for summary in of_run:
                file_writer.add_summary(summary)  # `add_hparams` would make a run of its own

        self.show(add)

    def flush(self) -> None:
        """Make all rows so far durable."""
        with reporting_os_errors(self._metrics_file):
            os.fsync(self._file.fileno())
        self.show(SummaryWriter.flush)

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
    figures = {}
    if "confusion_matrix" in row:
        names = row.get("label_names", label_names)
        figures["confusion matrix"] = charts.confusion_figure(row["confusion_matrix"], names)
    if "calibration" in row:
        figures["reliability"] = charts.reliability_figure(CalibrationBins(**row["calibration"]))
    # Pictures of a run's result are apart from those over time.
    group = split if split == "validation" else f"result on {split.removeprefix('best_')}"
    for name, figure in figures.items():
        # `SummaryWriter.add_figure` would import pyplot, and knows nothing of characters that a font lacks.
        pixels = charts.to_pixels(figure)
        writer.add_image(f"{group}/{name}", pixels, step, walltime=when, dataformats="HWC")


def _line(row: Mapping[str, Any]) -> str:
    return json_text(row) + "\n"


def log_final_report(
    metric_log: MetricLog, classifier: Classifier, config: Config, report: Report, answered: Answered, *, step: int
) -> None:
    """Show a report, and the classifier behind it, at the step at which it was the best."""
    scalars = report.metrics.scalars()
    scores = {name: scalars[key] for key, name in SCORES.items() if key in scalars}
    metric_log.hparams({**scores, **chosen_settings(config)})
    summary = "\n".join(f"    {line}" for line in summary_text(report).splitlines())  # as it is, in Markdown

    def show(writer: SummaryWriter) -> None:
        writer.add_text("result", summary, step)
        writer.add_text("most confident mistakes", mistakes_table(report), step)
        add_precision_recall(writer, report, answered, step)
        if classifier.encoder:
            split = answered.split
            chosen = np.random.default_rng(0).permutation(len(split))[:MOST_POINTS].tolist()
            texts = [split.texts[row] for row in chosen]
            labels = [split.label_text(row, answered.label_names) for row in chosen]
            add_embedding(writer, classifier.embed(texts, batch_tokens=config.train.batch_tokens), labels, texts)

    metric_log.show(show)


def add_embedding(
    writer: SummaryWriter, vectors: NDArray[np.float32], labels: Sequence[str], texts: Sequence[str]
) -> None:
    """Show vectors (points, d_model) in space, each with its label and its text.

    Points have one colour until someone chooses another, but their images keep theirs: so the image of each point is a
    square in the colour of its label.
    """
    _, groups = np.unique(labels, return_inverse=True)
    # Fields are separated by tabs, rows by line ends.
    rows = [[replace_unprintable(" ".join(it.split())) for it in row] for row in zip(labels, texts, strict=True)]
    images = torch.from_numpy(charts.colour_squares(groups))
    # The files go into a folder that is named after the step: here the projector's.
    writer.add_embedding(vectors, rows, images, PROJECTOR_FOLDER, "texts", metadata_header=["label", "text"])


def add_precision_recall(writer: SummaryWriter, report: Report, answered: Answered, step: int) -> None:
    """Show precision against recall of the rarest and the worst classes."""
    probabilities, labels = answered.probabilities, answered.labels
    num_classes = probabilities.shape[1]
    chosen, note = charts.notable_classes(report.metrics.per_class, MOST_CURVES, num_classes=num_classes)
    for number in chosen:
        is_class = labels[:, number] if labels.ndim > 1 else labels == number
        name = f"precision and recall/{report.label_names[number]}"
        writer.add_pr_curve(name, is_class, probabilities[:, number], step)
    if note:
        writer.add_text("precision and recall", note, step)


def chosen_settings(config: Config) -> dict[str, bool | float | str]:
    """Settings by dotted name, without the data: those that are always compared, and those that are not the default."""
    chosen: dict[str, bool | float | str] = {"seed": config.seed}
    for name in ("tokenizer", "model", "pretrain", "train"):
        section = getattr(config, name)
        defaults = type(section)().model_dump()
        for key, value in section.model_dump().items():
            if f"{name}.{key}" in ALWAYS_COMPARED or value != defaults[key]:
                chosen[f"{name}.{key}"] = value if isinstance(value, bool | int | float | str) else str(value)
    return chosen


def mistakes_table(report: Report) -> str:
    """A Markdown table; nothing in a text is markup."""
    rows = ["| answer | label | text |", "| --- | --- | --- |"]
    for error in report.worst_errors:
        # A longer text would squeeze the other columns until names are broken at any letter.
        text = shortened(error.text, limit=MOST_CHARACTERS)
        cells = (f"{error.kind} {error.answer} {error.probability:.2f}".strip(), ", ".join(error.labelled), text)
        rows.append("| " + " | ".join(markdown_text(cell) for cell in cells) + " |")
    return "\n".join(rows)
