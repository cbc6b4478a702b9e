"""The labelled texts that a run is scored on: its own, or those of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.config.loading import check_sources_of_run
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.checks import seen_warnings, split_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load import load_all_data, load_split, reading_of
from encoder_cls.data.rows import Notes
from encoder_cls.errors import DataError
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.run.run_folder import RunDir, run_of
from encoder_cls.system.encodings import ending_of
from encoder_cls.training.checkpoint import newest_fingerprint


def dataset_of_run(
    run: RunDir, classifier: Classifier, *, needed: bool, warn: Callable[[str], None]
) -> Dataset | None:
    """Load the data of a run; if it is missing or has changed, a `DataError` where it is needed, else None."""
    config = run.load_config()
    if needed:
        hint = "name labelled data with --data, or the new place in that file"
        check_sources_of_run(config.data, run.config_file, hint)
    try:
        dataset = load_all_data(config)
        _check_unchanged(run, dataset, config.data, classifier.label_names)
    except DataError as error:
        if needed:
            raise
        warn(f"warning: no TF-IDF baseline: {error}")
        return None
    return dataset


def _check_unchanged(
    run: RunDir, dataset: Dataset, data: DataConfig, label_names: tuple[str, ...]
) -> None:
    """Raise a `DataError` if classes have other numbers, or other texts are held out, than in training."""
    hint, now = "name labelled data with --data, or train again", dataset.train.fingerprint
    if dataset.label_names != label_names:
        raise DataError(f"{data.train}: its classes have changed since the run began; {hint}")
    holds_out = data.test is None and data.validation is None
    if holds_out and newest_fingerprint(run.checkpoints).get("training_data", now) != now:
        raise DataError(
            f"{data.train}: has changed since the run began, and with it which texts are held out; {hint}"
        )


def load_labelled(
    source: str,
    classifier: Classifier,
    data_config: DataConfig,
    dataset: Dataset | None,
    *,
    notify: Callable[[str], None],
) -> Split:
    """Load the labelled texts of a file, a folder or the Hub; `dataset` is that of training."""
    several, names = classifier.task is MULTI_LABEL, classifier.label_names
    labels_are, how = dataset.labels_are if dataset else None, reading_of(data_config)
    try:
        split = load_split(
            source, data_config, names, labels_are=labels_are, is_multi_label=several, reading=how
        )
    except DataError as error:
        is_table = ending_of(Path(source)) in (".csv", ".tsv", ".xlsx")
        is_of_row = error.where != source  # not a missing column
        if not (several and is_table and is_of_row and data_config.label_separator is None):
            raise
        hint = "where a cell has several labels, or none, name what separates them: --set data.label_separator='|'"
        raise DataError(f"{error}; {hint}") from None
    report_notes(
        source, split, [how.notes], classifier, dataset.train if dataset else None, notify=notify
    )
    return split


def report_notes(
    name: str,
    split: Split,
    of_source: Iterable[Notes],
    classifier: Classifier,
    train: Split | None = None,
    *,
    notify: Callable[[str], None],
) -> None:
    """Report notes and warnings of scored texts; given training texts, also a warning if a text is in both."""
    warnings: list[str] = []
    for notes in of_source:
        for message in notes.messages:
            notify(message)
        warnings += notes.warnings(name)
    warnings += split_warnings(name, split, classifier.label_names)
    warnings += seen_warnings(name, split, train) if train else ()
    for warning in warnings:
        notify(f"warning: {warning}")


def warn_of_seen(path: Path, split: Split, *, notify: Callable[[str], None]) -> None:
    """Warn if the run of this folder was trained on the texts that are scored."""
    run = run_of(path)
    with suppress(DataError):  # without its data, this is unknown
        for warning in (
            seen_warnings(f"--against {path}", split, load_all_data(run.load_config()).train)
            if run
            else ()
        ):
            notify(f"warning: {warning}")
