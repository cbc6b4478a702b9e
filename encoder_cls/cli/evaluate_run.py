"""A run or model folder in, a report on its data, or on a file, out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from encoder_cls.config import Config, DataConfig, missing_sources
from encoder_cls.data.checks import seen_warnings, split_warnings
from encoder_cls.data.dataset import Dataset, listed, load_split
from encoder_cls.data.load import load_all_data
from encoder_cls.data.split import Split
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.evaluation.base_run import compare_with_former
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.files import REPORT_FILES, write_report
from encoder_cls.evaluation.reference import reference_of
from encoder_cls.evaluation.report import AnyReport, Report
from encoder_cls.evaluation.scores import PairedComparison, compare_answers
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.task import MULTI_LABEL, Logits
from encoder_cls.system.encodings import ending_of
from encoder_cls.tracking.run_dir import RunDir, classifier_to_score, run_of
from encoder_cls.training.encoder.checkpoint import newest_fingerprint
from encoder_cls.training.linear.class_weights import class_weights_note


def evaluate_run(
    path: Path,
    *,
    data: str | None,
    folder: Path | None,
    tell: Callable[[str], None],
    reading: Mapping[str, str] | None = None,
    against: Path | None = None,
) -> AnyReport:
    """Score the classifier of a run (or model) folder.

    Args:
        path: the folder.
        data: a labelled source; none: the run's test split, else its validation split.
        folder: where to write the report with its page, predictions and pictures; none: nowhere, but what a run scores
            on its own data into its `eval` folder.
        tell: told what was written, and what could not be done.
        reading: values of `DataConfig` by which the source is read otherwise than in training.
        against: the folder of another classifier, which answers the same texts; the run's own report is without it.

    Raises:
        ConfigError: no classifier there, or no data to score.
        DataError: the data is missing or malformed, or no longer what the classifier was trained on.
        EncoderClsError: the disk refuses the folder that was named.
    """
    classifier, other = classifier_to_score(path), classifier_to_score(against) if against else None
    for folder_of, its in ((path, classifier), (against, other)):
        if against and its and its.task is MULTI_LABEL:
            raise ConfigError(
                f"--against {against}: compares classifiers with one label a text; those of {folder_of} may be several"
            )
    run = run_of(path)
    origin = _origin(path, run, classifier, data=data, tell=tell)
    dataset = origin.dataset
    if data is not None:
        data_config = origin.data_config.model_copy(update=dict(reading or {}))
        name, split = data, _split_of(data, data_config, classifier, dataset)
    else:
        assert dataset is not None
        name, split = _reported(path, dataset)
    train = dataset.train if dataset and data is not None else None
    for note in _notes(name, split, classifier.label_names, train):
        tell(note)
    reference = reference_of(dataset, split) if dataset else None
    report, logits = evaluate(classifier, split, name=name, reference=reference)
    if isinstance(report, Report) and data is None and dataset:
        report = _with_what_its_run_tells(report, classifier, run, dataset, can_weigh_classes=origin.can_weigh_classes)
    of_itself = report
    if isinstance(report, Report) and against and other:
        compared = _compared(against, other, split, report.label_names, logits, tell=tell)
        report = replace(report, against=compared)
    if where := folder or (run.eval if run and data is None else None):  # what a run says of itself is kept up to date
        try:
            written = report if folder else of_itself
            write_report(where, written, split, logits, run_name=origin.name, config_yaml=origin.config_yaml)
            tell(f"wrote {where}: {', '.join(name for name in REPORT_FILES if (where / name).exists())}")
        except EncoderClsError as error:
            if folder:
                raise
            tell(f"warning: {error}")
    return report


def _reported(path: Path, dataset: Dataset) -> tuple[str, Split]:
    """Name and examples of the split that a run is scored on."""
    name, split = dataset.reported
    if not len(split):
        raise ConfigError(f"{path}: no text of its data has a label to score; name labelled texts with --data")
    return name, split


def _with_what_its_run_tells(
    report: Report, classifier: Classifier, run: RunDir | None, dataset: Dataset, *, can_weigh_classes: bool
) -> Report:
    """A report on a run's own data, with what is known of how it was trained; without a run, of the data alone."""
    if can_weigh_classes:
        report = replace(report, class_weights_note=_class_weights_note(classifier, dataset.train))
    if run is None:
        return report
    if run.validation_logits.exists():
        report = replace(report, num_refitted=len(dataset.selection))
    former = run.load_config().from_run
    if dataset.former is None or former is None or not RunDir(Path(former)).model.is_dir():
        return report
    answers = compare_with_former(classifier, classifier_to_score(Path(former)), dataset.former, run=former)
    return replace(report, former_answers=answers)


def _compared(
    path: Path,
    other: Classifier,
    split: Split,
    label_names: Sequence[str],
    logits: Logits,
    *,
    tell: Callable[[str], None],
) -> PairedComparison:
    """What another classifier, of this folder, answers to texts, beside what was answered with these logits."""
    if not set(other.label_names) & set(label_names):
        raise ConfigError(
            f"--against {path}: knows none of the classes that are scored ({listed(label_names)}), but "
            f"{listed(other.label_names)}"
        )
    if run := run_of(path):
        with suppress(DataError):  # its data is gone, so nobody can tell
            train = load_all_data(run.load_config()).train
            for warning in seen_warnings(f"--against {path}", split, train):
                tell(f"warning: {warning}")
    numbers = {name: number for number, name in enumerate(dict.fromkeys((*label_names, *other.label_names)))}
    found = other.combined(other.part_logits(other.tokenize(split.texts))).argmax(axis=1)
    answers = np.array([numbers[name] for name in other.label_names], dtype=np.int64)[found]
    return compare_answers(split.labels, logits.argmax(axis=1), answers, run=str(path))


def _class_weights_note(classifier: Classifier, train: Split) -> str:
    linear = classifier.linear
    if linear is None:
        return ""
    return class_weights_note(
        train,
        classifier.tokenize(train.texts),
        max_tokens=linear.max_tokens,
        use_char_ngrams=bool(len(linear.frequent_token_ids)),
    )


def _notes(name: str, split: Split, label_names: Sequence[str], train: Split | None) -> Iterator[str]:
    """What a person should know of texts that are scored; with the training texts also whether they are among these."""
    yield from split.notes
    for warning in split_warnings(name, split, label_names):
        yield f"warning: {warning}"
    for warning in seen_warnings(name, split, train) if train else ():
        yield f"warning: {warning}"


class _Origin(NamedTuple):
    """What is known of where a classifier comes from.

    Attributes:
        name: of the run or the folder.
        data_config: how its data was read.
        dataset: its data, if that is still there.
        config_yaml: the config of the run; empty of a model folder.
        can_weigh_classes: whether classes had no weights in training.
    """

    name: str
    data_config: DataConfig
    dataset: Dataset | None
    config_yaml: str
    can_weigh_classes: bool


def _origin(
    path: Path, run: RunDir | None, classifier: Classifier, *, data: str | None, tell: Callable[[str], None]
) -> _Origin:
    if run:
        if not run.is_finished():
            tell(f"{run.path} is not finished: this is its best model so far")
        config = run.load_config()
        dataset = dataset_of_run(run, config, classifier.label_names, needed=data is None, warn=tell)
        return _Origin(config.name, config.data, dataset, config.to_yaml(), config.train.class_weights == "none")
    if data is None:
        raise ConfigError(f"{path}: a model folder without its run has no data of its own; name some with --data")
    data_config = DataConfig(
        train=data,
        text_column=classifier.text_columns,
        delimiter=classifier.delimiter,
        encoding=classifier.encoding,
    )
    return _Origin(path.resolve().name, data_config, None, "", False)


def _split_of(data: str, config: DataConfig, classifier: Classifier, dataset: Dataset | None) -> Split:
    """The labelled texts of a file, a folder or the Hub.

    Raises:
        DataError: they cannot be read as the classifier has learned labels to be.
    """
    several = classifier.task is MULTI_LABEL
    labels_are = dataset.labels_are if dataset else None
    try:
        return load_split(data, config, classifier.label_names, labels_are=labels_are, is_multi_label=several)
    except DataError as error:
        is_table = ending_of(Path(data)) in (".csv", ".tsv", ".xlsx")
        if not (several and is_table and config.label_separator is None):
            raise
        hint = "where a cell has several labels, or none, name what separates them: --set data.label_separator='|'"
        raise DataError(f"{error}; {hint}") from None


def dataset_of_run(
    run: RunDir, config: Config, label_names: Sequence[str], *, needed: bool, warn: Callable[[str], None]
) -> Dataset | None:
    """The data that a run was trained on, if its files are still there and the same.

    Raises:
        DataError: they are not, and are needed.
    """
    missing = missing_sources(config.data)
    if missing and needed:
        key, source = missing[0]
        raise DataError(
            f"{run.config_file}: {key}: {source}: no such file or folder, where the run's data was; name labelled data "
            "with --data, or the new place in that file"
        )
    try:
        dataset = load_all_data(config)
        _check_unchanged(run, dataset, config.data, label_names)
    except DataError as error:
        if needed:
            raise
        warn(f"warning: no linear reference: {error}")
        return None
    return dataset


def _check_unchanged(run: RunDir, dataset: Dataset, config: DataConfig, label_names: Sequence[str]) -> None:
    """Make sure that classes have their numbers still, and that no text to be scored was trained on."""
    hint = "name labelled data with --data, or train again"
    if dataset.label_names != tuple(label_names):
        raise DataError(f"{config.train}: its classes have changed since the run began; {hint}")
    if config.test is None and config.validation is None:
        found = dataset.train.fingerprint
        if newest_fingerprint(run.checkpoints).get("training_data", found) != found:
            raise DataError(
                f"{config.train}: has changed since the run began, and with it which texts are held out; {hint}"
            )
