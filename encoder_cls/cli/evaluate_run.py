"""A run or model folder in, a report on its data, or on a file, out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from encoder_cls.config import Config, DataConfig, missing_sources
from encoder_cls.data.checks import split_warnings
from encoder_cls.data.dataset import Dataset, Split, load_dataset, load_split
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.evaluation.baseline import linear_reference
from encoder_cls.evaluation.evaluate import evaluate
from encoder_cls.evaluation.report import Report
from encoder_cls.evaluation.report_files import write_report
from encoder_cls.inference.serialization import load_classifier
from encoder_cls.inference.torch_engine import torch_encoder
from encoder_cls.tracking.run_dir import RunDir, run_of
from encoder_cls.training.checkpoint import newest_fingerprint


def evaluate_run(
    path: Path, *, data: str | None, warn: Callable[[str], None], reading: Mapping[str, str] | None = None
) -> Report:
    """Score the classifier of a run (or model) folder; scored on its own data, a run's `eval` folder is written.

    Args:
        path: the folder.
        data: a labelled source; none: the run's test split, else its validation split.
        warn: told what could not be done.
        reading: values of `DataConfig` by which the source is read otherwise than in training.

    Raises:
        ConfigError: no classifier there, or no data to score.
        DataError: the data is missing or malformed, or no longer what the classifier was trained on.
    """
    classifier = load_classifier(path)
    if classifier.encoder:
        classifier.encoder = torch_encoder(classifier)
    run = run_of(path)
    if run is None:
        if data is None:
            raise ConfigError(f"{path}: a model folder without its run has no data of its own; name some with --data")
        data_config = DataConfig(
            train=data,
            text_column=classifier.text_columns,
            delimiter=classifier.delimiter,
            encoding=classifier.encoding,
        )
        dataset = None
    else:
        config = run.load_config()
        data_config = config.data
        dataset = _dataset_of_run(run, config, classifier.label_names, needed=data is None, warn=warn)
    if data is not None:
        data_config = data_config.model_copy(update=dict(reading or {}))
        split = load_split(
            data, data_config, classifier.label_names, labels_are=dataset.labels_are if dataset else None
        )
        _warn_of(data, split, classifier.label_names, warn)
        reference = linear_reference(dataset.train, split) if dataset else None
        return evaluate(classifier, split, name=data, reference=reference)[0]
    assert run is not None and dataset is not None
    name, split = dataset.reported
    _warn_of(name, split, classifier.label_names, warn)
    report, logits = evaluate(classifier, split, name=name, reference=linear_reference(dataset.train, split))
    try:
        write_report(run.eval, report, split, logits, run_name=config.name, config_yaml=config.to_yaml())
    except EncoderClsError as error:
        warn(f"warning: {error}")
    return report


def _warn_of(name: str, split: Split, label_names: Sequence[str], warn: Callable[[str], None]) -> None:
    for note in split.notes:
        warn(note)
    for warning in split_warnings(name, split, label_names):
        warn(f"warning: {warning}")


def _dataset_of_run(
    run: RunDir, config: Config, label_names: Sequence[str], *, needed: bool, warn: Callable[[str], None]
) -> Dataset | None:
    """The data that a run was trained on, if its files are still there and the same."""
    missing = missing_sources(config.data)
    if missing and needed:
        key, source = missing[0]
        raise DataError(
            f"{run.config_file}: {key}: {source}: no such file or folder, where the run's data was; name labelled data "
            "with --data, or the new place in that file"
        )
    try:
        dataset = load_dataset(config.data)
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
        found = dataset.train.fingerprint()
        if newest_fingerprint(run.checkpoints).get("training_data", found) != found:
            raise DataError(
                f"{config.train}: has changed since the run began, and with it which texts are held out; {hint}"
            )
