"""The data of a run that has begun, loaded again: it must not have changed."""

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
from encoder_cls.run.checkpoint import newest_fingerprint
from encoder_cls.run.run_folder import RunDir
from encoder_cls.system.json_values import json_text
from encoder_cls.system.reporter import Reporter


def config_with_moved_data(run: RunDir, moved: Mapping[str, str] | None = None) -> Config:
    """Load the config of a run, with the new places of its data by key of `DataConfig`."""
    settings = []
    if moved:
        settings = [f"data.{key}={json_text(place)}" for key, place in moved.items()]
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
    """Load the data of a run; None if it is missing or has changed, where it is not needed.

    The texts that were held out must be those of the training. With `judges_all_labels`, no
    training or validation text may have changed, whatever the run is scored on.

    Raises:
        DataError: the data is missing or has changed, where it is needed.
    """
    if judges_all_labels:
        hint_if_missing = "if it has been moved, add --set KEY=PATH"
        hint_if_changed = "train again"
    else:
        hint_if_missing = (
            "if it has been moved, add --set KEY=PATH, or name labelled data with --data"
        )
        hint_if_changed = "name labelled data with --data, or train again"

    if needed:
        check_sources_of_run(config.data, run.config_file, hint_if_missing)
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
            hint=hint_if_changed,
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
    """Check that data is that of the training.

    `training` and `validation` say whether the texts and labels of these splits are checked, too.

    Raises:
        DataError: the classes have other numbers than in training, or a split has changed.
    """
    if dataset.label_names != tuple(label_names):
        raise DataError(f"{data.train}: its classes have changed since the run began; {hint}")

    if not training and not validation:
        return
    # A run without a checkpoint has no fingerprint to compare with.
    known = newest_fingerprint(run.checkpoints)

    if training:
        current = dataset.train.fingerprint
        if known.get("training_data", current) != current:
            consequence = ""
            if data.validation is None:
                consequence = ", and with it which texts are held out"
            raise DataError(f"{data.train}: has changed since the run began{consequence}; {hint}")

    if validation:
        current = dataset.validation.fingerprint
        if known.get("validation_data", current) != current:
            source = data.validation or data.train
            raise DataError(
                f"{source}: its validation texts have changed since the run began; {hint}"
            )


def record_moved_data(run: RunDir, config: Config) -> bool:
    """Record the new places of a run's data, if the config names any.

    Returns:
        Whether there were new places.

    Raises:
        DataError: the data there is not that of the run.
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
