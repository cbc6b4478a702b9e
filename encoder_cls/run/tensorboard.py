"""What TensorBoard shows of a run.

TensorBoard sorts its cards by name, and groups them by the part before the first slash. The names
here put the scores that show whether a run learns first, and the F1 of each class last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from encoder_cls.config.schema import Config
from encoder_cls.evaluation import matplotlib_figures
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_text import summary_text
from encoder_cls.metrics.classification import CalibrationBins
from encoder_cls.metrics.scores import ALL_SCORES, Place, scores_shown_in
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.display import shortened
from encoder_cls.system.markdown import markdown_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
"""A row of `metrics.jsonl`: `step`, `split`, `time`, and the values."""

# The values of a row that are not measured.
AXES = {"step", "split", "time"}

# The tags of numbers that are no scores of the whole classifier, by split and name. Those of its
# parts are in the groups of its own scores, whose tags are in `metrics/scores`.
OTHER_TAGS = {
    ("validation", "encoder_micro_f1"): "F1 in validation, micro/encoder",
    ("validation", "linear_micro_f1"): "F1 in validation, micro/linear",
    ("validation", "encoder_accuracy"): "accuracy in validation/encoder",
    ("validation", "linear_accuracy"): "accuracy in validation/linear",
    ("validation", "linear_weight"): "validation/weight of the linear model",
    ("train", "loss"): "loss/train",
    ("pretraining/train", "loss"): "pretraining/loss in training",
    ("pretraining/validation", "loss"): "pretraining/loss in validation",
    ("train", "grad_norm"): "training/gradient norm",
    ("train", "learning_rate"): "training/learning rate",
    ("train", "tokens_per_s"): "training/tokens per second",
}


def _all_tags() -> dict[tuple[str, str], str]:
    """`OTHER_TAGS`, and the tags of scores in validations."""
    tags = dict(OTHER_TAGS)
    for score in ALL_SCORES:
        if score.curve is not None:
            tags["validation", score.key] = score.curve
    return tags


# The tags of all numbers that are shown, by split and name; `metrics.jsonl` has all numbers.
TAGS = _all_tags()

# The prefix of the F1 of each class in a row.
CLASS_F1 = "f1/"
# With more classes, their F1 is not shown.
MAX_CLASSES = 100


class TensorBoard:
    """Writes the files of TensorBoard into a run folder, until the disk refuses them.

    The event file lies in the run folder itself, after which TensorBoard names the run. The files
    of an earlier process are removed.

    Args:
        warn: is called once if the files cannot be written; nothing is written from then on.
    """

    def __init__(self, run: RunDir, *, warn: Callable[[str], None]) -> None:
        self._run = run
        self._warn = warn
        self._writer: SummaryWriter | None = None

        # The writer has a thread, whose error would print a traceback. The next call of the writer
        # raises the same error.
        self._earlier_hook = threading.excepthook
        threading.excepthook = _ignore

        with self._until_refused():
            for old in run.event_files:
                old.unlink(missing_ok=True)
            # With purge_step, a running TensorBoard forgets what was in the old files.
            self._writer = SummaryWriter(str(run.path), purge_step=0)

    def show_config(self, config: Config) -> None:
        """Show a config as text."""
        with self._until_refused():
            if self._writer:
                self._writer.add_text("settings", f"```yaml\n{config.to_yaml()}```")

    def show_row(self, row: Row, label_names: Sequence[str]) -> None:
        """Show a row of `metrics.jsonl`.

        The split `data` is a table. Of other splits, numbers in `TAGS` and the F1 of classes are
        curves, and `confusion_matrix` and `calibration` are images.
        """
        with self._until_refused():
            if self._writer is None:
                return
            if row["split"] == "data":
                self._writer.add_text("data", _data_table(row), row["step"], walltime=row["time"])
                return
            _add_curves(self._writer, row, label_names)
            _add_images(self._writer, row, label_names)

    def show_report(self, report: Report, *, step: int) -> None:
        """Show the summary of a report and its most confident mistakes as text."""
        # Lines that begin with four spaces are preformatted in Markdown.
        summary = "\n".join(f"    {line}" for line in summary_text(report).splitlines())

        with self._until_refused():
            if self._writer:
                self._writer.add_text("result", summary, step)
                self._writer.add_text("most confident mistakes", mistakes_table(report), step)

    def show_hparams(self, values: Mapping[str, bool | float | str]) -> None:
        """Show settings and scores in the table of all runs.

        Scores are not passed as metrics, which TensorBoard would draw as curves of one point. No
        run declares the columns of the table: TensorBoard would take those of the first run for
        all.
        """
        _, *summaries = hparams(dict(values), {})  # type: ignore[no-untyped-call]

        with self._until_refused():
            if self._writer:
                # `SummaryWriter.add_hparams` would start another run.
                file_writer = self._writer._get_file_writer()  # type: ignore[no-untyped-call]
                for summary in summaries:
                    file_writer.add_summary(summary)

    def flush(self) -> None:
        """Write everything so far to the disk."""
        with self._until_refused():
            if self._writer:
                self._writer.flush()

    def close(self) -> None:
        """Write the rest, and close the files."""
        with self._until_refused():
            if self._writer:
                self._writer.close()
        threading.excepthook = self._earlier_hook

    @contextmanager
    def _until_refused(self) -> Iterator[None]:
        """Warn of an `OSError`, and write nothing more after it."""
        try:
            yield
        except OSError as error:
            self._writer = None
            self._warn(
                f"{error.filename or self._run.path}: cannot write: {error.strerror or error}; "
                f"training goes on without TensorBoard ({self._run.metrics_file} has every number)"
            )


def _ignore(_: threading.ExceptHookArgs) -> None:
    """Take no notice of the error of a thread."""


def _data_table(row: Row) -> str:
    """The statistics of the data as a Markdown table."""
    lines = ["| data | |", "| --- | ---: |"]
    for name, value in row.items():
        if name in AXES:
            continue
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.1%}"
        lines.append(f"| {name.replace('_', ' ')} | {shown} |")
    return "\n".join(lines)


def _add_curves(writer: SummaryWriter, row: Row, label_names: Sequence[str]) -> None:
    """Add a point to each curve of a row's split."""
    split = row["split"]
    has_class_curves = split == "validation" and len(label_names) <= MAX_CLASSES

    for name, value in row.items():
        tag = TAGS.get((split, name))
        if has_class_curves and name.startswith(CLASS_F1):
            tag = f"validation F1/{name.removeprefix(CLASS_F1)}"
        if tag:
            writer.add_scalar(tag, value, row["step"], walltime=row["time"])


def _add_images(writer: SummaryWriter, row: Row, label_names: Sequence[str]) -> None:
    """Add the confusion matrix and the calibration of a final result, in a group of their own."""
    images: dict[str, Figure] = {}
    if "confusion_matrix" in row:
        # The labels of the result may be more than those of the training texts.
        names = row.get("label_names", label_names)
        images["confusion matrix"] = matplotlib_figures.confusion_figure(
            row["confusion_matrix"], names
        )
    if "calibration" in row:
        images["reliability"] = matplotlib_figures.reliability_figure(
            CalibrationBins(**row["calibration"])
        )

    group = f"result on {row['split'].removeprefix('best_')}"
    for name, image in images.items():
        # `SummaryWriter.add_figure` would import pyplot, and warn of characters that a font lacks.
        pixels = matplotlib_figures.to_pixels(image)
        writer.add_image(
            f"{group}/{name}", pixels, row["step"], walltime=row["time"], dataformats="HWC"
        )


# The table of all runs

# The sections of the config that are compared: all but the data.
COMPARED_SECTIONS = ("tokenizer", "model", "pretrain", "train")
# The settings that are compared even where they have their default.
ALWAYS_COMPARED = {"model.d_model", "model.num_layers", "train.learning_rate"}


def hparams_of(report: Report, config: Config) -> dict[str, bool | float | str]:
    """The scores of a run by their names, and its settings by dotted key.

    The names of scores sort before those of settings.
    """
    values: dict[str, bool | float | str] = {}
    scores = report.metrics.scalars()
    for score in scores_shown_in(Place.RUN_TABLE):
        if score.key in scores:
            values[score.name] = scores[score.key]

    values.update(chosen_settings(config))
    return values


def chosen_settings(config: Config) -> dict[str, bool | float | str]:
    """The seed, `ALWAYS_COMPARED`, and the settings that differ from their default, by dotted key.

    Settings of the data are left out.
    """
    chosen: dict[str, bool | float | str] = {"seed": config.seed}
    for name in COMPARED_SECTIONS:
        section = getattr(config, name)
        defaults = type(section)().model_dump()

        for key, value in section.model_dump().items():
            dotted = f"{name}.{key}"
            if dotted not in ALWAYS_COMPARED and value == defaults[key]:
                continue
            # TensorBoard knows no lists and no null.
            is_scalar = isinstance(value, bool | int | float | str)
            chosen[dotted] = value if is_scalar else str(value)
    return chosen


# The table of mistakes

# Characters of the text of a mistake: a longer one would make the other columns so narrow that
# names break at any letter. `report.html` has the whole text.
MAX_CHARACTERS = 70


def mistakes_table(report: Report) -> str:
    """The most confident mistakes as a Markdown table, with all markup in their texts escaped."""
    lines = ["| prediction | label | text |", "| --- | --- | --- |"]
    for mistake in report.evaluation.worst_mistakes:
        prediction = f"{mistake.kind} {mistake.prediction} {mistake.probability:.2f}".strip()
        labels = ", ".join(mistake.labels)
        text = shortened(mistake.text, limit=MAX_CHARACTERS)

        cells = " | ".join(markdown_text(cell) for cell in (prediction, labels, text))
        lines.append(f"| {cells} |")
    return "\n".join(lines)
