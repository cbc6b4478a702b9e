"""The labelled texts that a run is scored on: its own, or those of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.data_paths import SOURCES, absolute_sources, check_sources_of_run
from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.checks import seen_warnings, split_warnings
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.data.load import load_all_data, load_split, reading_of
from encoder_cls.data.rows import Notes
from encoder_cls.errors import DataError
from encoder_cls.evaluation.held_out_answers import OwnAnswers
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.run.checkpoint import newest_fingerprint
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.columns import ConcatenatedTexts
from encoder_cls.system.display import json_text
from encoder_cls.system.encodings import ending_of
from encoder_cls.system.reporter import Reporter


def config_with_moved_data(run: RunDir, moved: Mapping[str, str] | None = None) -> Config:
    """Load the config of a run, with the new places of data that has been moved, by key of `DataConfig`."""
    settings = [f"data.{key}={json_text(place)}" for key, place in (moved or {}).items()]
    return load_config(run.config_file, settings)


def dataset_of_run(
    run: RunDir,
    config: Config,
    classifier: Classifier,
    *,
    needed: bool,
    reporter: Reporter,
    judges_all_labels: bool = False,
) -> Dataset | None:
    """Load the data of a run; if it is missing or has changed, a `DataError` where it is needed, else None.

    The texts that were held out must be those of the training. With `judges_all_labels`, no training or validation text
    may have changed, whatever the run is scored on.
    """
    if needed:
        hint = "if it has been moved, add --set KEY=PATH"
        if not judges_all_labels:
            hint += ", or name labelled data with --data"
        check_sources_of_run(config.data, run.config_file, hint)
    try:
        dataset = load_all_data(config)
        scores_held_out = config.data.test is None and config.data.validation is None
        check_unchanged(
            run,
            dataset,
            config.data,
            classifier.label_names,
            training=scores_held_out or judges_all_labels,
            validation=judges_all_labels,
            hint="train again"
            if judges_all_labels
            else "name labelled data with --data, or train again",
        )
    except DataError as error:
        if needed:
            raise
        reporter.warning(f"no TF-IDF baseline: {error}")
        return None
    return dataset


def check_unchanged(
    run: RunDir,
    dataset: Dataset,
    data: DataConfig,
    label_names: Sequence[str],
    *,
    training: bool,
    validation: bool,
    hint: str,
) -> None:
    """Raise a `DataError` if classes have other numbers than in training, or the named splits other texts or labels."""
    if dataset.label_names != tuple(label_names):
        raise DataError(f"{data.train}: its classes have changed since the run began; {hint}")

    known = newest_fingerprint(run.checkpoints) if training or validation else {}
    if training:
        now = dataset.train.fingerprint
        if known.get("training_data", now) != now:
            follows = ", and with it which texts are held out" if data.validation is None else ""
            raise DataError(f"{data.train}: has changed since the run began{follows}; {hint}")
    if validation:
        now = dataset.selection.fingerprint
        if known.get("validation_data", now) != now:
            source = data.validation or data.train
            raise DataError(
                f"{source}: its validation texts have changed since the run began; {hint}"
            )


def record_moved_data(run: RunDir, config: Config) -> bool:
    """Record the new places of a run's data, if the config names any; `DataError` if it is other data.

    Returns:
        Whether there were new places.
    """
    recorded = absolute_sources(run.load_config()).data
    named = absolute_sources(config).data
    if all(getattr(named, key) == getattr(recorded, key) for key in SOURCES):
        return False

    dataset = load_all_data(config)
    check_unchanged(
        run,
        dataset,
        config.data,
        load_classifier(run.path, engine="numpy").label_names,
        training=True,
        validation=True,
        hint="name the data that the run was trained on",
    )
    with run.lock():
        run.record_sources(config)
    return True


def load_labelled(
    source: str,
    classifier: Classifier,
    data_config: DataConfig,
    dataset: Dataset | None,
    learned: Iterable[str] = (),
    *,
    reporter: Reporter,
) -> Split:
    """Load the labelled texts of a file, a folder or the Hub; `dataset` is that of training.

    `learned` are the texts that the classifier has learned from, to warn of.
    """
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
    report_notes(source, split, [how.notes], classifier, learned, reporter=reporter)
    return split


def report_notes(
    name: str,
    split: Split,
    of_source: Iterable[Notes],
    classifier: Classifier,
    learned: Iterable[str] = (),
    *,
    reporter: Reporter,
) -> None:
    """Report notes and warnings of scored texts, also if many of them are among those that were `learned`."""
    warnings: list[str] = []
    for notes in of_source:
        for message in notes.messages:
            reporter.note(message)
        warnings += notes.warnings(name)
    warnings += split_warnings(name, split, classifier.label_names)
    warnings += seen_warnings(name, split, learned)
    for warning in warnings:
        reporter.warning(str(warning))


def learned_texts(dataset: Dataset, own: OwnAnswers | None) -> Iterable[str]:
    """The labelled texts that a run has learned from: also those held out, where it has earlier answers to them."""
    if own is None:
        return dataset.train.texts
    return ConcatenatedTexts(dataset.train.texts, dataset.selection.texts)
