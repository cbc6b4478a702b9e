"""Show a run in TensorBoard.

It sorts its cards by tag, and groups them by the part before the first slash: the tags here let the
scores that show whether a run learns come first, and the F1 of each class last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tensorboard.summary.writer.event_file_writer import _AsyncWriterThread
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from encoder_cls.config.schema import Config
from encoder_cls.evaluation import matplotlib_figures
from encoder_cls.evaluation.report import Report
from encoder_cls.metrics.classification import CalibrationBins
from encoder_cls.metrics.scores import ALL_SCORES, Place, scores_shown_in
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.display import shortened
from encoder_cls.system.libraries import is_installed
from encoder_cls.system.markdown import markdown_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A row of `metrics.jsonl`: `step`, `split`, `time`, and the values by name.
Row = Mapping[str, Any]

# The names in a row that are not measured values.
AXES = {"step", "split", "time"}

# The tags of values that are not scores of the whole classifier, by split and name. The tags of
# scores of the whole classifier are in `metrics/scores`. Scores of the encoder or the linear model
# alone are in the same groups.
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
    tags = dict(OTHER_TAGS)
    for score in ALL_SCORES:
        if score.curve is not None:
            tags["validation", score.key] = score.curve
    return tags


# The tags of all values that are curves in TensorBoard, by split and name. `metrics.jsonl` has
# other values as well.
TAGS = _all_tags()

# The prefix of the name of a class's F1 score in a row.
CLASS_F1 = "f1/"
# The maximum number of classes for which the F1 score of each class is shown.
MAX_CLASSES = 100


class TensorBoard:
    """Writes the files of TensorBoard into a run folder, in place of those of an earlier process.

    If a file cannot be written, `warn` is called once, and nothing is written after it.
    """

    def __init__(self, run: RunDir, *, warn: Callable[[str], None]) -> None:
        self._run = run
        self._warn = warn
        self._writer: SummaryWriter | None = None

        # Ignore errors of the thread of the writer, which would print a traceback. The next call of
        # the writer raises the same error. Threads of the caller report theirs as before.
        self._previous_hook = threading.excepthook
        threading.excepthook = self._report_unless_of_writer

        with self._warning_once():
            for old_file in run.event_files:
                old_file.unlink(missing_ok=True)
            # Set purge_step, so that a running TensorBoard forgets the content of the old files.
            self._writer = SummaryWriter(str(run.path), purge_step=0)

    def _report_unless_of_writer(self, arguments: threading.ExceptHookArgs) -> None:
        if not isinstance(arguments.thread, _AsyncWriterThread):
            self._previous_hook(arguments)

    def show_config(self, config: Config) -> None:
        """Show a config as text."""
        with self._warning_once():
            if self._writer:
                self._writer.add_text("settings", f"```yaml\n{config.to_yaml()}```")

    def show_row(self, row: Row, label_names: Sequence[str]) -> None:
        """Show a row of `metrics.jsonl`.

        That of the split `data` is a table; in others, the values in `TAGS` and the F1 scores of
        classes are points of curves, and `confusion_matrix` and `calibration` are images.
        """
        with self._warning_once():
            if self._writer is None:
                return
            if row["split"] == "data":
                self._writer.add_text("data", _data_table(row), row["step"], walltime=row["time"])
                return
            _add_curves(self._writer, row, label_names)
            _add_images(self._writer, row, label_names)

    def show_report(self, report: Report, *, step: int) -> None:
        """Show a report's summary and its most confident mistakes as text."""
        # Indent the lines by four spaces, so that Markdown shows them as they are.
        summary = "\n".join(f"    {line}" for line in report.summary().splitlines())

        with self._warning_once():
            if self._writer:
                self._writer.add_text("result", summary, step)
                self._writer.add_text("most confident mistakes", mistakes_table(report), step)

    def show_hparams(self, values: Mapping[str, bool | float | str]) -> None:
        """Show settings and scores in the table of all runs."""
        # Pass scores as settings, because TensorBoard would draw metrics as curves of one point.
        # Leave out the first summary, which declares the columns, because TensorBoard would use the
        # columns of the first run for all runs.
        _, *summaries = hparams(dict(values), {})  # type: ignore[no-untyped-call]

        with self._warning_once():
            if self._writer:
                # Do not call `SummaryWriter.add_hparams`, which would start another run.
                file_writer = self._writer._get_file_writer()  # type: ignore[no-untyped-call]
                for summary in summaries:
                    file_writer.add_summary(summary)

    def flush(self) -> None:
        """Flush what is shown to the disk."""
        with self._warning_once():
            if self._writer:
                self._writer.flush()

    def close(self) -> None:
        """Flush, and close the files."""
        with self._warning_once():
            if self._writer:
                self._writer.close()
        threading.excepthook = self._previous_hook

    @contextmanager
    def _warning_once(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._writer = None
            self._warn(
                f"{error.filename or self._run.path}: cannot write: {error.strerror or error}; "
                "training continues without TensorBoard "
                f"({self._run.metrics_file} has every number)"
            )


def _data_table(row: Row) -> str:
    lines = ["| data | |", "| --- | ---: |"]
    for name, value in row.items():
        if name in AXES:
            continue
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.1%}"
        lines.append(f"| {name.replace('_', ' ')} | {shown} |")
    return "\n".join(lines)


def _add_curves(writer: SummaryWriter, row: Row, label_names: Sequence[str]) -> None:
    split = row["split"]
    has_class_curves = split == "validation" and len(label_names) <= MAX_CLASSES

    for name, value in row.items():
        tag = TAGS.get((split, name))
        if has_class_curves and name.startswith(CLASS_F1):
            tag = f"validation F1/{name.removeprefix(CLASS_F1)}"
        if tag:
            writer.add_scalar(tag, value, row["step"], walltime=row["time"])


def _add_images(writer: SummaryWriter, row: Row, label_names: Sequence[str]) -> None:
    if not is_installed("matplotlib"):
        return

    images: dict[str, Figure] = {}
    if "confusion_matrix" in row:
        # The scored texts may have labels that do not occur in the training texts.
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
        # Do not call `SummaryWriter.add_figure`, which would import pyplot, and warn of characters
        # that the font does not have.
        pixels = matplotlib_figures.to_pixels(image)
        writer.add_image(
            f"{group}/{name}", pixels, row["step"], walltime=row["time"], dataformats="HWC"
        )


# The table of all runs

# The sections of the config that the table of runs compares: all except the data.
COMPARED_SECTIONS = ("tokenizer", "model", "pretrain", "train")
# The settings that the table shows even if they have their default values.
ALWAYS_COMPARED = {"model.d_model", "model.num_layers", "train.learning_rate"}


def hparams_of(report: Report, config: Config) -> dict[str, bool | float | str]:
    """The columns of a run in TensorBoard's table of all runs: scores, and settings by key.

    TensorBoard sorts columns by name; the names of scores come before the keys of settings.
    """
    values: dict[str, bool | float | str] = {}
    scores = report.metrics.scalars()
    for score in scores_shown_in(Place.RUN_TABLE):
        if score.key in scores:
            values[score.name] = scores[score.key]

    values.update(chosen_settings(config))
    return values


def chosen_settings(config: Config) -> dict[str, bool | float | str]:
    """The settings that the table of runs shows, by dotted key.

    They are the seed, those in `ALWAYS_COMPARED`, and those that differ from their default, without
    those of the data.
    """
    chosen: dict[str, bool | float | str] = {"seed": config.seed}
    for name in COMPARED_SECTIONS:
        section = getattr(config, name)
        defaults = type(section)().model_dump()

        for key, value in section.model_dump().items():
            dotted = f"{name}.{key}"
            if dotted not in ALWAYS_COMPARED and value == defaults[key]:
                continue
            # TensorBoard's table has no lists and no null, so show them as text.
            is_scalar = isinstance(value, bool | int | float | str)
            chosen[dotted] = value if is_scalar else str(value)
    return chosen


# The table of mistakes

# The maximum number of characters of a text in the table. A longer text would make the other
# columns so narrow that class names would be broken into pieces. `report.html` has the whole texts.
MAX_CHARACTERS = 70


def mistakes_table(report: Report) -> str:
    """The most confident mistakes as a Markdown table, with markup in texts escaped."""
    lines = ["| prediction | label | text |", "| --- | --- | --- |"]
    for mistake in report.evaluation.worst_mistakes:
        prediction = f"{mistake.kind} {mistake.prediction} {mistake.probability:.2f}".strip()
        labels = ", ".join(mistake.labels)
        text = shortened(mistake.text, limit=MAX_CHARACTERS)

        cells = " | ".join(markdown_text(cell) for cell in (prediction, labels, text))
        lines.append(f"| {cells} |")
    return "\n".join(lines)
