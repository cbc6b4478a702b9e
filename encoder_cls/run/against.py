"""Compare the predictions of two classifiers for the same texts, for `eval --against`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.data.data_warnings import seen_warnings
from encoder_cls.data.dataset import Split
from encoder_cls.data.load_dataset import load_data
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.evaluation.comparisons import (
    RunComparison,
    compare_predictions,
    labels_predicted_by,
)
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.run.labelled_source import learned_texts
from encoder_cls.run.run_folder import RunDir, run_of
from encoder_cls.system.display import listed
from encoder_cls.system.reporter import Reporter


def load_other(path: Path, classifier: Classifier, classifier_path: Path) -> Classifier:
    """Load the classifier in the folder `path`, to compare another one with it.

    A `ConfigError` says that there is none, or that only one is multi-label.
    """
    other = load_classifier(path, engine="torch")
    if other.task is not classifier.task:
        single_label, multi_label = path, classifier_path
        if other.is_multi_label:
            single_label, multi_label = classifier_path, path
        raise ConfigError(
            f"--against {path}: {multi_label} may predict several labels a text, and "
            f"{single_label} predicts one; compare two models of the same kind"
        )
    return other


def compare_against(
    path: Path,
    other: Classifier,
    predictions: SplitPredictions,
    *,
    is_own_data: bool,
    reporter: Reporter,
) -> RunComparison:
    """Compare predictions with those of another classifier for the same texts.

    Validation texts of its run are compared by its held-out predictions.

    Raises:
        ConfigError: the two classifiers have no class in common.
    """
    label_names = predictions.label_names
    split = predictions.split
    if not set(other.label_names) & set(label_names):
        raise ConfigError(
            f"--against {path}: its classes ({listed(other.label_names)}) are none of those that "
            f"are scored ({listed(label_names)})"
        )

    validation_predictions = None
    run = run_of(path)
    if run:
        validation_predictions = _validation_predictions_of_other(
            run, other, split, is_own_data=is_own_data, reporter=reporter
        )
    other_predictions = labels_predicted_by(other, split, label_names, validation_predictions)
    return compare_predictions(
        predictions.labels,
        predictions.predicted_labels,
        other_predictions,
        predictions.groups,
        run=str(path),
    )


def _validation_predictions_of_other(
    run: RunDir, classifier: Classifier, split: Split, *, is_own_data: bool, reporter: Reporter
) -> ValidationPredictions | None:
    """Read the held-out predictions of the other run, if they are needed.

    Warn if it has learned from many of the compared texts.
    """
    try:
        dataset = load_data(run.load_config())
    except DataError as error:
        reporter.warning(f"{run.path} may have learned from some of these texts: {error}")
        return None

    validation_predictions = None
    try:
        validation_predictions = ValidationPredictions.of_run(
            run.held_out_predictions, classifier, dataset.validation
        )
    except DataError as error:
        reporter.warning(str(error))

    # Do not warn of texts that are compared by held-out predictions.
    has_no_prediction = np.ones(len(split), dtype=bool)
    if validation_predictions and is_own_data:
        rows, _ = validation_predictions.find_in(split)
        has_no_prediction[rows] = False

    other_texts = split.subset(np.flatnonzero(has_no_prediction))
    is_learned = other_texts.are_among(learned_texts(dataset, validation_predictions))
    for warning in seen_warnings(
        f"--against {run.path}", num_learned=int(is_learned.sum()), num_texts=len(other_texts)
    ):
        reporter.warning(warning)

    if not is_own_data:
        return None
    return validation_predictions
