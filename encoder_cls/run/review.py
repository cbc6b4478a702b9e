"""Review the labels of a run, each by a classifier that has not seen it.

Training texts are reviewed by a linear model of the other folds, all others by that of the run, before a refit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import Dataset
from encoder_cls.errors import ConfigError
from encoder_cls.evaluation.doubtful_labels import doubtful_rows
from encoder_cls.evaluation.held_out_answers import OwnAnswers, logits_before_refit
from encoder_cls.evaluation.label_tables import LabelRow
from encoder_cls.evaluation.mistakes import Answered
from encoder_cls.linear.features import LinearOptions
from encoder_cls.linear.nb_svm import out_of_fold_logits
from encoder_cls.metrics.logits import MULTI_LABEL
from encoder_cls.run.reloaded_data import config_with_moved_data, dataset_of_run
from encoder_cls.run.run_folder import run_of
from encoder_cls.system.reporter import Reporter


class Review(NamedTuple):
    """The labels of a run that seem to be wrong, the most doubtful first.

    `rows` are those whose label is not the most probable class, and those that `data.corrections` has corrected, so
    that the new file can replace that one.
    """

    rows: list[LabelRow]
    texts: int  # that were reviewed
    more_probable: int  # of these, those with another class as the most probable one
    # Of these, the texts whose label seems to be wrong; too many where the classifier is weak.
    estimated_errors: int
    data: DataConfig


def review_run(path: Path, *, reporter: Reporter, moved: Mapping[str, str] | None = None) -> Review:
    """Judge the labels of all splits of a run; `moved` are new places of its data, by key of `DataConfig`.

    Raises:
        ConfigError: not a run, or one without a classifier yet, or multi-label.
        DataError: the data is missing, or has changed since the training.
    """
    classifier, run = load_classifier(path, engine="torch"), run_of(path)
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
    own = OwnAnswers.of_run(run.held_out_answers, classifier, dataset.validation)
    rows: list[LabelRow] = []
    texts, more_probable, errors = 0, 0, 0
    for answered in _judged(dataset, classifier, own):
        split, probabilities = answered.split, answered.probabilities
        is_judged = np.ones(len(split), dtype=bool)
        if answered.name == "train":  # which takes other texts of the class, not held out with it
            pairs = np.unique([split.labels, split.together], axis=1)
            is_judged = np.bincount(pairs[0])[split.labels] > 1
        texts += int(is_judged.sum())
        errors += len(doubtful_rows(probabilities[is_judged], split.labels[is_judged]))

        is_corrected = np.zeros(len(split), dtype=bool)
        if dataset.corrected:
            is_corrected[:] = [where in dataset.corrected for where in split.where]
        is_wrong = (answered.answers != split.labels) & is_judged
        more_probable += int(is_wrong.sum())
        for row in answered.label_rows(np.flatnonzero(is_wrong | is_corrected)):
            label_in_data = dataset.corrected.get(row.where, row.label)
            rows.append(row._replace(label_in_data=label_in_data))
    return Review(
        rows=sorted(rows, key=lambda row: -row.score),
        texts=texts,
        more_probable=more_probable,
        estimated_errors=errors,
        data=config.data,
    )


def _judged(dataset: Dataset, classifier: Classifier, own: OwnAnswers | None) -> Iterator[Answered]:
    """Answer each split by a classifier that has not seen its labels; `own` are the run's earlier answers."""
    train, linear = dataset.train, classifier.linear
    weights = np.ones(len(classifier.label_names), dtype=np.float32)
    options = LinearOptions(classifier.max_seq_len, False, weights)
    if linear:
        options = LinearOptions.like(linear, weights)
    texts = classifier.tokenize(train.texts)
    (out_of_fold,) = out_of_fold_logits(texts, train.labels, [options], together=train.together)
    yield Answered(
        name="train", split=train, logits=out_of_fold, label_names=classifier.label_names
    )
    for name, split in (("validation", dataset.validation), ("test", dataset.test)):
        if split:
            logits = logits_before_refit(classifier, split, own)
            names = (*classifier.label_names, *split.unseen_names)
            yield Answered(name=name, split=split, logits=logits, label_names=names)
