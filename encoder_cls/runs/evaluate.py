"""Score the classifier of a run or model folder on its data, or on a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from encoder_cls.config import Config, DataConfig, missing_sources
from encoder_cls.data.base_run import load_all_data
from encoder_cls.data.checks import seen_warnings, split_warnings
from encoder_cls.data.dataset import Dataset, Split, listed
from encoder_cls.data.load import load_split, reading_of
from encoder_cls.data.rows import Notes
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.evaluation.answers import Answered
from encoder_cls.evaluation.baseline import baseline_scores
from encoder_cls.evaluation.comparisons import PairedComparison, compare_answers, numbered_answers
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.files import REPORT_FILES, write_report
from encoder_cls.evaluation.report import Report
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.task import MULTI_LABEL
from encoder_cls.system.encodings import ending_of
from encoder_cls.tracking.run_dir import RunDir, run_of
from encoder_cls.tracking.validation_logits import classifier_to_score
from encoder_cls.training.encoder.checkpoint import newest_fingerprint
from encoder_cls.training.score import score_run


def evaluate_run(
    path: Path,
    *,
    data: str | None,
    folder: Path | None,
    tell: Callable[[str], None],
    reading: Mapping[str, str] | None = None,
    against: Path | None = None,
) -> Report:
    """Score the classifier of a run or model folder.

    Args:
        path: the folder.
        data: a labelled source; None: the run's test split, else its validation split.
        folder: where to write the report with its page, predictions and pictures; None: nowhere, except that the report
            on a run's own data goes into its `eval` folder.
        tell: called with notes and warnings.
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
    if run and not run.is_finished():
        tell(f"{run.path} is not finished: this is its best model so far")
    config = run.load_config() if run else None
    dataset = None
    if run and config:
        dataset = dataset_of_run(run, config, classifier.label_names, needed=data is None, warn=tell)
    if data is not None:
        split, notes = _split_of(data, config, classifier, dataset, reading or {})
        _tell_notes(data, split, [notes], classifier, dataset.train if dataset else None, tell=tell)
        reference = baseline_scores(dataset, split) if dataset else None
        report, answered = evaluate(classifier, split, name=data, reference=reference)
    elif run and config and dataset:
        name, split = dataset.reported
        if not len(split):
            raise ConfigError(f"{path}: no text of its data has a label to score; name labelled texts with --data")
        _tell_notes(name, split, [notes for source, notes in dataset.sources if source == name], classifier, tell=tell)
        report, answered = score_run(run, classifier, config, dataset)
    else:
        raise ConfigError(f"{path}: a model folder without its run has no data of its own; name some with --data")
    compared = report
    if against and other:
        compared = replace(report, against=_compared(against, other, answered, tell=tell))
    where = folder or (run.eval if run and data is None else None)
    if where:
        yaml, name = (config.to_yaml(), config.name) if config else ("", path.resolve().name)
        try:
            # The report in the run's folder is of the run alone.
            write_report(where, compared if folder else report, answered, run_name=name, config_yaml=yaml)
            tell(f"wrote {where}: {', '.join(name for name in REPORT_FILES if (where / name).exists())}")
        except EncoderClsError as error:
            if folder:
                raise
            tell(f"warning: {error}")
    return compared


def _compared(path: Path, other: Classifier, answered: Answered, *, tell: Callable[[str], None]) -> PairedComparison:
    """Answer the same texts with another classifier, of this folder."""
    names, split = answered.label_names, answered.split
    if not set(other.label_names) & set(names):
        raise ConfigError(
            f"--against {path}: knows none of the classes that are scored ({listed(names)}), but "
            f"{listed(other.label_names)}"
        )
    if run := run_of(path):
        with suppress(DataError):  # its data is gone, so nobody can tell
            train = load_all_data(run.load_config()).train
            for warning in seen_warnings(f"--against {path}", split, train):
                tell(f"warning: {warning}")
    return compare_answers(split.labels, answered.answers, numbered_answers(other, split.texts, names), run=str(path))


def _tell_notes(
    name: str,
    split: Split,
    of_source: Sequence[Notes],
    classifier: Classifier,
    train: Split | None = None,
    *,
    tell: Callable[[str], None],
) -> None:
    """Tell notes and warnings of texts that are scored; with the training texts also whether they are among these."""
    warnings: list[str] = []
    for notes in of_source:
        for message in notes.messages:
            tell(message)
        warnings += notes.warnings(name)
    warnings += split_warnings(name, split, classifier.label_names)
    for warning in [*warnings, *(seen_warnings(name, split, train) if train else ())]:
        tell(f"warning: {warning}")


def _split_of(
    data: str, config: Config | None, classifier: Classifier, dataset: Dataset | None, reading: Mapping[str, str]
) -> tuple[Split, Notes]:
    """Load the labelled texts of a file, a folder or the Hub, by default as in training.

    Raises:
        DataError: they cannot be read as the classifier has learned labels to be.
    """
    several = classifier.task is MULTI_LABEL
    of_model = DataConfig(
        train=data,
        text_column=classifier.text_columns,
        delimiter=classifier.delimiter,
        encoding=classifier.encoding,
    )
    data_config = (config.data if config else of_model).model_copy(update=dict(reading))
    labels_are = dataset.labels_are if dataset else None
    try:
        how = reading_of(data_config)
        names = classifier.label_names
        split = load_split(data, data_config, names, labels_are=labels_are, is_multi_label=several, reading=how)
    except DataError as error:
        is_table = ending_of(Path(data)) in (".csv", ".tsv", ".xlsx")
        if not (several and is_table and data_config.label_separator is None):
            raise
        hint = "where a cell has several labels, or none, name what separates them: --set data.label_separator='|'"
        raise DataError(f"{error}; {hint}") from None
    return split, how.notes


def dataset_of_run(
    run: RunDir, config: Config, label_names: Sequence[str], *, needed: bool, warn: Callable[[str], None]
) -> Dataset | None:
    """Load the data that a run was trained on; None where it is gone or has changed, and is not needed.

    Raises:
        DataError: it is gone or has changed, and is needed.
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
        warn(f"warning: no TF-IDF baseline: {error}")
        return None
    return dataset


def _check_unchanged(run: RunDir, dataset: Dataset, config: DataConfig, label_names: Sequence[str]) -> None:
    """Make sure that classes still have their numbers, and that no text to be scored was trained on."""
    hint = "name labelled data with --data, or train again"
    if dataset.label_names != tuple(label_names):
        raise DataError(f"{config.train}: its classes have changed since the run began; {hint}")
    if config.test is None and config.validation is None:
        found = dataset.train.fingerprint
        if newest_fingerprint(run.checkpoints).get("training_data", found) != found:
            raise DataError(
                f"{config.train}: has changed since the run began, and with it which texts are held out; {hint}"
            )
