"""Review the labels of a run, each by a classifier that has not seen it.

Training texts are reviewed by a linear model of the other folds. All other texts are reviewed by
the classifier of the run, as it was before it was fitted again with the validation texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.errors import ConfigError
from encoder_cls.evaluation.doubtful_labels import doubtful_rows
from encoder_cls.evaluation.held_out_predictions import ValidationPredictions, logits_before_refit
from encoder_cls.evaluation.label_tables import LabelRow
from encoder_cls.evaluation.split_predictions import SplitPredictions
from encoder_cls.linear.features import LinearOptions
from encoder_cls.linear.nb_svm import out_of_fold_logits
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.run.reloaded_data import config_with_moved_data, dataset_of_run
from encoder_cls.run.run_folder import run_of
from encoder_cls.system.reporter import Reporter


class Review(NamedTuple):
    """The labels of a run that seem to be wrong.

    Attributes:
        rows: the texts whose label is not the most probable class, the most doubtful first, and
            those that `data.corrections` has corrected, so that the new file can replace that one.
        texts: how many texts were reviewed.
        more_probable: how many of these have another class as the most probable one.
        estimated_errors: how many of these labels seem to be wrong; too many where the classifier
            is weak.
        data: how the data of the run is read.
    """

    rows: list[LabelRow]
    texts: int
    more_probable: int
    estimated_errors: int
    data: DataConfig


def review_run(path: Path, *, reporter: Reporter, moved: Mapping[str, str] | None = None) -> Review:
    """Judge the labels of all splits of a run; `moved` are new places of its data, by key.

    Raises:
        ConfigError: not a run, or one without a classifier yet, or multi-label.
        DataError: the data is missing, or has changed since the training.
    """
    classifier = load_classifier(path, engine="torch")
    run = run_of(path)
    if run is None:
        raise ConfigError(
            f"{path}: a model folder without its run has no data to review; name the run"
        )
    if classifier.task is MULTI_LABEL:
        raise ConfigError(
            f"{path}: review is for data with one label a text; here a text may have several"
        )

    config = config_with_moved_data(run, moved)
    dataset = dataset_of_run(
        run, config, classifier, needed=True, reporter=reporter, judges_all_labels=True
    )
    assert dataset is not None
    own = ValidationPredictions.of_run(run.held_out_predictions, classifier, dataset.validation)

    rows: list[LabelRow] = []
    num_texts = 0
    num_more_probable = 0
    num_errors = 0
    for predictions in _judged(dataset, classifier, own):
        labels = predictions.split.labels
        is_judged = _can_be_judged(predictions)
        is_more_probable = (predictions.predicted_labels != labels) & is_judged

        # Count.
        num_texts += int(is_judged.sum())
        num_more_probable += int(is_more_probable.sum())
        num_errors += len(doubtful_rows(predictions.probabilities[is_judged], labels[is_judged]))

        # List the doubtful labels and the corrected ones.
        is_listed = is_more_probable | _are_corrected(predictions.split, dataset)
        for row in predictions.label_rows(np.flatnonzero(is_listed)):
            label_in_data = dataset.labels_before_corrections.get(row.where, row.label)
            rows.append(row._replace(label_in_data=label_in_data))

    return Review(
        rows=sorted(rows, key=lambda row: -row.score),
        texts=num_texts,
        more_probable=num_more_probable,
        estimated_errors=num_errors,
        data=config.data,
    )


def _can_be_judged(predictions: SplitPredictions) -> NDArray[np.bool_]:
    """Which texts of a split have a label that can be judged, (texts,).

    A training text is judged by other texts of its class, which are not held out with it.
    """
    split = predictions.split
    if predictions.name != "train":
        return np.ones(len(split), dtype=bool)

    # The texts that are held out together, once for each class among them.
    pairs = np.unique([split.labels, split.split_groups], axis=1)
    num_groups_of_class = np.bincount(pairs[0])
    has_other_texts: NDArray[np.bool_] = num_groups_of_class[split.labels] > 1
    return has_other_texts


def _are_corrected(split: Split, dataset: Dataset) -> NDArray[np.bool_]:
    """Which texts of a split have a label of `data.corrections`, (texts,)."""
    is_corrected = np.zeros(len(split), dtype=bool)
    if dataset.labels_before_corrections:
        is_corrected[:] = [where in dataset.labels_before_corrections for where in split.where]
    return is_corrected


def _judged(
    dataset: Dataset, classifier: Classifier, own: ValidationPredictions | None
) -> Iterator[SplitPredictions]:
    """Predict each split by a classifier that has not seen its labels.

    `own` are the run's earlier predictions for its validation texts.
    """
    # Cross-validate a linear model like that of the run.
    train = dataset.train
    class_weights = np.ones(len(classifier.label_names), dtype=np.float32)
    if classifier.linear:
        options = LinearOptions.like(classifier.linear, class_weights)
    else:
        options = LinearOptions(classifier.max_seq_len, False, class_weights)
    texts = classifier.tokenize(train.texts)
    (out_of_fold,) = out_of_fold_logits(
        texts, train.labels, [options], split_groups=train.split_groups
    )
    yield SplitPredictions(
        name="train", split=train, logits=out_of_fold, label_names=classifier.label_names
    )

    for name, split in (("validation", dataset.validation), ("test", dataset.test)):
        if split:
            logits = logits_before_refit(classifier, split, own)
            names = (*classifier.label_names, *split.unseen_names)
            yield SplitPredictions(name=name, split=split, logits=logits, label_names=names)
