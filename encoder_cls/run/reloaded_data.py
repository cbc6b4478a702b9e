"""Load the data of an existing run again, and check that it has not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.data_paths import SOURCES, absolute_sources, check_sources_of_run
from encoder_cls.config.loading import load_config
from encoder_cls.config.schema import Config, DataConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.data.load_dataset import load_all_data
from encoder_cls.errors import DataError
from encoder_cls.run.checkpoint_files import newest_fingerprint
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.json_values import json_text
from encoder_cls.system.reporter import Reporter


def config_with_moved_data(run: RunDir, moved: Mapping[str, str] | None = None) -> Config:
    """Load the config of a run, with the new paths of its data by key of `DataConfig`."""
    settings = []
    if moved:
        settings = [f"data.{key}={json_text(place)}" for key, place in moved.items()]
    return load_config(run.config_file, settings)


def dataset_of_run(
    run: RunDir, config: Config, classifier: Classifier, *, checks_all_splits: bool = False
) -> Dataset:
    """Load the data of a run, whose classes are those of its classifier, to score or review it.

    The config has the current paths. With `checks_all_splits`, neither the training nor the
    validation split may have changed; by default, only the texts that are scored must not have
    changed.

    Raises:
        DataError: the data is missing or has changed.
    """
    if checks_all_splits:
        hint_if_missing = "if it has been moved, add --set KEY=PATH"
        hint_if_changed = "train again"
    else:
        hint_if_missing = (
            "if it has been moved, add --set KEY=PATH, or name labelled data with --data"
        )
        hint_if_changed = "name labelled data with --data, or train again"

    check_sources_of_run(config.data, run.config_file, hint_if_missing)
    return _load_unchanged(
        run, config, classifier, checks_all_splits=checks_all_splits, hint=hint_if_changed
    )


def dataset_of_run_for_baseline(
    run: RunDir, config: Config, classifier: Classifier, *, reporter: Reporter
) -> Dataset | None:
    """Load the data of a run for the TF-IDF baseline of other texts.

    The config has the current paths. If the data is missing or has changed, there is a warning, and
    the result is None.
    """
    try:
        return _load_unchanged(
            run,
            config,
            classifier,
            checks_all_splits=False,
            hint="name labelled data with --data, or train again",
        )
    except DataError as error:
        reporter.warning(f"no TF-IDF baseline: {error}")
        return None


def _load_unchanged(
    run: RunDir, config: Config, classifier: Classifier, *, checks_all_splits: bool, hint: str
) -> Dataset:
    """Load the data of a run, and raise a `DataError` with a hint if it has changed."""
    dataset = load_all_data(config)

    # If the run is scored on texts that were held out from its training data, any change of the
    # training data may hold out other texts.
    is_scored_on_held_out = config.data.test is None and config.data.validation is None
    check_unchanged(
        run,
        dataset,
        config.data,
        classifier.label_names,
        checks_training=is_scored_on_held_out or checks_all_splits,
        checks_validation=checks_all_splits,
        hint=hint,
    )
    return dataset


def check_unchanged(
    run: RunDir,
    dataset: Dataset,
    data: DataConfig,
    label_names: Sequence[str],
    *,
    checks_training: bool,
    checks_validation: bool,
    hint: str,
) -> None:
    """Check that the data of a run is the same as in its training.

    The newest checkpoint in the folder `run` has the hashes of the texts and labels of the splits.
    Messages name the paths of `data`, and say by `hint` how to mend the error.

    Raises:
        DataError: the classes have changed or have another order, or a split has changed.
    """
    if dataset.label_names != tuple(label_names):
        raise DataError(f"{data.train}: its classes have changed since the run began; {hint}")

    if not checks_training and not checks_validation:
        return
    # A run without checkpoints has no fingerprint, so there is nothing to compare.
    saved = newest_fingerprint(run.checkpoints)

    if checks_training:
        current = dataset.train.fingerprint
        if saved.get("training_data", current) != current:
            consequence = ""
            if data.validation is None:
                consequence = ", and with it which texts are held out"
            raise DataError(f"{data.train}: has changed since the run began{consequence}; {hint}")

    if checks_validation:
        current = dataset.validation.fingerprint
        if saved.get("validation_data", current) != current:
            source = data.validation or data.train
            raise DataError(
                f"{source}: its validation texts have changed since the run began; {hint}"
            )


def record_moved_data(run: RunDir, config: Config) -> bool:
    """Record the new paths of a run's data in its folder, and return whether there are any.

    Raises:
        DataError: the data at the new paths is not the data of the run.
    """
    recorded_data = absolute_sources(run.load_config()).data
    named_data = absolute_sources(config).data
    if all(getattr(named_data, key) == getattr(recorded_data, key) for key in SOURCES):
        return False

    dataset = load_all_data(config)
    check_unchanged(
        run,
        dataset,
        config.data,
        load_classifier(run.path, engine="numpy").label_names,
        checks_training=True,
        checks_validation=True,
        hint="name the data that the run was trained on",
    )
    with run.lock():
        run.record_sources(config)
    return True
