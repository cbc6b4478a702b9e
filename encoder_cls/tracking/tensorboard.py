"""Show the result of a finished run in TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter

from encoder_cls.config import Config
from encoder_cls.evaluation import plots
from encoder_cls.evaluation.answers import Answered
from encoder_cls.evaluation.charts import notable_classes
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.sections import summary_text
from encoder_cls.inference.classifier import Classifier
from encoder_cls.system.display import markdown_text, replace_unprintable, shortened
from encoder_cls.tracking.metric_log import MetricLog
from encoder_cls.tracking.run_dir import PROJECTOR_FOLDER

ALWAYS_COMPARED = {"model.d_model", "model.num_layers", "train.learning_rate"}
# The scores that runs are compared by, by names that come before those of settings.
SCORES = {
    "accuracy": "accuracy",
    "ece": "calibration error",
    "loss": "loss",
    "macro_f1": "macro F1",
    "mean_average_precision": "mean average precision",
    "micro_f1": "micro F1",
}
MOST_CURVES = 12  # classes with a curve of their own
MOST_POINTS = 2000  # texts in the projector
MOST_CHARACTERS = 70  # of a mistake; `report.html` has all


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
            _add_texts(writer, classifier, config, answered)

    metric_log.show(show)


def _add_texts(writer: SummaryWriter, classifier: Classifier, config: Config, answered: Answered) -> None:
    """Show some texts in space."""
    split = answered.split
    chosen = np.random.default_rng(0).permutation(len(split))[:MOST_POINTS].tolist()
    texts = [split.texts[row] for row in chosen]
    labels = [split.label_text(row, answered.label_names) for row in chosen]
    add_embedding(writer, classifier.embed(texts, batch_tokens=config.train.batch_tokens), labels, texts)


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
    images = torch.from_numpy(plots.colour_squares(groups))
    # The files go into a folder that is named after the step: here the projector's.
    writer.add_embedding(vectors, rows, images, PROJECTOR_FOLDER, "texts", metadata_header=["label", "text"])


def add_precision_recall(
    writer: SummaryWriter, report: Report, answered: Answered, step: int, *, most: int = MOST_CURVES
) -> None:
    """Show precision against recall of the rarest and the worst classes."""
    probabilities, labels = answered.probabilities, answered.labels
    num_classes = probabilities.shape[1]
    chosen = notable_classes(report.metrics.per_class, most, num_classes=num_classes)
    for number in chosen:
        is_class = labels[:, number] if labels.ndim > 1 else labels == number
        name = f"precision and recall/{report.label_names[number]}"
        writer.add_pr_curve(name, is_class, probabilities[:, number], step)
    occurring = int(np.count_nonzero(answered.split.class_counts(num_classes)))
    if len(chosen) < occurring:
        left_out = f"Curves of {len(chosen)} of {occurring} classes: the rarest and those with the lowest F1."
        writer.add_text("precision and recall", left_out, step)


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
