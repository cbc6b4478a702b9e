"""Load the data of an existing run again, and check that it has not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.data_paths import SOURCES, absolute_sources, check_sources_of_run
from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import Config
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_data
from encoder_cls.errors import DataError
from encoder_cls.run.checkpoint_files import newest_fingerprint
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.json_values import json_text
from encoder_cls.system.reporter import Reporter


def config_with_moved_data(run: RunDir, moved: Mapping[str, str] | None) -> Config:
    """Load the config of a run, with new paths of its data by key of `DataConfig`."""
    settings = []
    if moved:
        settings = [f"data.{key}={json_text(place)}" for key, place in moved.items()]
    return load_config(run.config_file, settings)


# The splits that decide what a run has learned.
TRAINED_ON = ("train", "validation")
# What a user can do about data of a run that has changed.
NAME_OTHER_DATA = "name labelled data with --data, or train again"


def dataset_of_run(
    run: RunDir, config: Config, classifier: Classifier, *, checks_all_splits: bool = False
) -> Dataset:
    """Load the data of a run, with the classes of its classifier, to score or review it.

    With `checks_all_splits`, texts that were learned from must be unchanged, too.

    Raises:
        DataError: the data is missing or has changed.
    """
    if checks_all_splits:
        hint_if_missing = "if it has been moved, add --set KEY=PATH"
        check_sources_of_run(config.data, run.config_file, hint_if_missing)
        return _load_unchanged(
            run, config, classifier.label_names, splits=TRAINED_ON, hint="train again"
        )

    hint_if_missing = "if it has been moved, add --set KEY=PATH, or name labelled data with --data"
    check_sources_of_run(config.data, run.config_file, hint_if_missing)
    return _load_to_score(run, config, classifier)


def dataset_of_run_for_baseline(
    run: RunDir, config: Config, classifier: Classifier, *, reporter: Reporter
) -> Dataset | None:
    """Load the data of a run for the baseline of other texts, or warn that it cannot be."""
    try:
        return _load_to_score(run, config, classifier)
    except DataError as error:
        reporter.warning(f"no TF-IDF baseline: {error}")
        return None


def _load_to_score(run: RunDir, config: Config, classifier: Classifier) -> Dataset:
    # If the run is scored on texts that were held out from its training data, any change of the
    # training data may hold out other texts.
    splits: Sequence[str] = ()
    if config.data.test is None and config.data.validation is None:
        splits = ("train",)
    return _load_unchanged(run, config, classifier.label_names, splits=splits, hint=NAME_OTHER_DATA)


def _load_unchanged(
    run: RunDir, config: Config, label_names: Sequence[str], *, splits: Sequence[str], hint: str
) -> Dataset:
    """Load the data of a run; a `DataError` with `hint` if its classes or `splits` have changed."""
    dataset = load_data(config)
    data = config.data
    if dataset.label_names != tuple(label_names):
        raise DataError(f"{data.train}: its classes have changed since the run began; {hint}")
    if not splits:
        return dataset

    # A run without checkpoints has no fingerprint, so there is nothing to compare.
    saved = newest_fingerprint(run.checkpoints)

    current = dataset.train.fingerprint
    if "train" in splits and saved.get("training_data", current) != current:
        consequence = ""
        if data.validation is None:
            consequence = ", and with it which texts are held out"
        raise DataError(f"{data.train}: has changed since the run began{consequence}; {hint}")

    current = dataset.validation.fingerprint
    if "validation" in splits and saved.get("validation_data", current) != current:
        source = data.validation or data.train
        raise DataError(f"{source}: its validation texts have changed since the run began; {hint}")
    return dataset


def record_moved_data(run: RunDir, config: Config) -> bool:
    """Record the new paths of a run's data in its folder; False if there are none.

    Raises:
        DataError: it is not the data of the run.
    """
    recorded_data = absolute_sources(run.load_config()).data
    named_data = absolute_sources(config).data
    if all(getattr(named_data, key) == getattr(recorded_data, key) for key in SOURCES):
        return False

    classifier = load_classifier(run.path, engine="numpy")
    hint = "name the data that the run was trained on"
    _load_unchanged(run, config, classifier.label_names, splits=TRAINED_ON, hint=hint)
    with run.lock():
        run.record_sources(config)
    return True
