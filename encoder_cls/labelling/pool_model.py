"""The model in the loop: it learns from the labels so far, predicts the pool, and suggests texts.

A fit depends only on the pool and on the labels that it is given, so that the same labels give the
same guesses and suggestions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.config.schema import TokenizerConfig, TrainConfig
from encoder_cls.data.label_names import names_as_texts
from encoder_cls.labelling.representative_texts import (
    Similarities,
    choose_representatives,
    text_similarities,
)
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.corpus import sample_rows
from encoder_cls.linear_training.cost import (
    FEW_LABELS_EFFORTS,
    PLANNED,
    CorpusSizes,
    Effort,
    EffortChoice,
    count_fits,
)
from encoder_cls.linear_training.features import CountedTexts, LabelledTexts, LinearOptions
from encoder_cls.linear_training.few_labels import FewLabelsFit, fit_linear_from_few_labels
from encoder_cls.linear_training.folds import FOLDS, split_into_folds
from encoder_cls.linear_training.model_selection import cross_validate, fit_calibrated
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokenizer_training import train_and_tokenize
from encoder_cls.text.tokens import TokenizedTexts

Floats = NDArray[np.float64]

# The most work of a fit, in tokens that a machine learns from: about a minute on two cores. A fit
# that would be more work has fewer rounds of self-training, or learns from a sample of the pool. It
# is counted and not timed, so that the same labels give the same guesses on every computer.
MAX_WORK = 20_000_000
# The first choice of an effort: folds that hold out so few labels that a model without them is
# hardly worse than the model in use. The five folds of a training hold out a fifth of the labels,
# and the accuracy that the page shows would be that of a model with fewer labels. Twenty folds take
# 1.5 times as long as twelve, and raise the shown accuracy by less than half a point:
# docs/experiments/accuracy.md#accuracy-that-the-label-page-shows.
SMALL_FOLDS = PLANNED._replace(
    key="small_folds", name="12 small folds", num_folds=12, tries_all_c_values=False
)
# The maximum number of labels for small folds. With more labels, a fifth of them changes little.
MAX_SMALL_FOLDS = 300
# The maximum number of labels for the fit to few labels, as in training.
MAX_FEW_LABELS = 2000
# The maximum number of tokens that the model reads of a text.
MAX_TOKENS = 1024
# The probability from which a label is predicted in a multi-label task.
THRESHOLD = 0.5
# The number of classes that a guess lists; all predicted ones if there are more.
TOP = 3
# The number of texts that are suggested after a fit. Up to 500 labels, the next fit comes earlier.
SUGGESTED = 50
# The same for a trained model, which is not fitted again, and before the first fit.
SUGGESTED_AT_FIRST = 150
# The maximum number of texts that a trained model predicts.
PREDICTED_BY_RUN = 5000
# The maximum number of texts among which texts are suggested: the first ones, which are drawn at
# random. Their similarities take 36 MB.
SUGGESTED_AMONG = 3000
# By how much the process of the model gives way to others, the page among them.
NICENESS = 5


class Labels(NamedTuple):
    """The labels that the model learns from.

    Attributes:
        texts: the labelled texts, as indices of texts, (labelled,).
        labels: the labels of each of them.
        class_names: the names of the classes that have labelled texts.
        class_numbers: the numbers of these classes in the session, which renaming keeps.
    """

    texts: Sequence[int]
    labels: Sequence[Sequence[str]]
    class_names: Sequence[str]
    class_numbers: Sequence[int]
    is_multi_label: bool


class Fit(NamedTuple):
    """What the model has learned.

    Attributes:
        top_classes: the most probable classes of each text, by their numbers in the session,
            (texts, top). Predicted classes come before all others.
        top_probabilities: their probabilities, (texts, top).
        num_predicted: how many of these classes are predicted for each text, (texts,); always 1
            unless the task is multi-label.
        suggestions: the indices of texts to label next, the most useful first.
        is_right: for each labelled text, whether a model without this text would predict exactly
            its labels, (labelled,).
        error_factor: the factor by which errors would fall with twice as many labels, from 0 to 1;
            None if it is unknown.
    """

    top_classes: NDArray[np.int32]
    top_probabilities: NDArray[np.float32]
    num_predicted: NDArray[np.int32]
    suggestions: Sequence[int]
    is_right: NDArray[np.bool_]
    error_factor: float | None
    seconds: float


@dataclass
class PoolModel:
    """A model of a pool, whose texts come first, before further labelled texts.

    A copy of it works in a process of its own.
    """

    texts: Sequence[str]
    pool_size: int
    _is_nice: bool = field(default=False, init=False)

    def __call__(self, task: Labels | Path | None) -> Fit | list[int]:
        """Fit to labels, or predict the pool by the run or model in a folder.

        For None, choose the texts that represent the pool without a model, and return their
        indices.
        """
        if not self._is_nice:
            self._is_nice = True
            with suppress(OSError, AttributeError):
                os.nice(NICENESS)

        if task is None:
            return self.first_suggestions()
        if isinstance(task, Path):
            return self.predict_by_run(task)
        return self.fit(task)

    @cached_property
    def _tokenized(self) -> tuple[Tokenizer, TokenizedTexts]:
        tokenizer, texts, _ = train_and_tokenize(
            self.texts, TokenizerConfig(), max_seq_len=MAX_TOKENS
        )
        return tokenizer, texts

    @cached_property
    def _similarities(self) -> Similarities:
        _, texts = self._tokenized
        num_texts = min(self.pool_size, SUGGESTED_AMONG)
        class_weights = np.ones(1, dtype=np.float32)
        options = LinearOptions(MAX_TOKENS, char_ngrams=True, class_weights=class_weights)
        return text_similarities(
            texts[:num_texts], options, dimensions=TrainConfig().lsa_dimensions
        )

    def first_suggestions(self) -> list[int]:
        """Choose texts that represent the pool, where no model predicts it."""
        return self._suggestions(np.ones(self.pool_size), (), SUGGESTED_AT_FIRST)

    def fit(self, labels: Labels) -> Fit:
        """Fit to labels and to the pool without labels, predict the pool, and suggest texts."""
        began = time.monotonic()
        task = MULTI_LABEL if labels.is_multi_label else SINGLE_LABEL
        thresholds = [THRESHOLD] * len(labels.class_names)
        targets = _targets(labels)
        if labels.is_multi_label or len(labels.texts) > MAX_FEW_LABELS:
            linear, out_of_fold = self._fit_to_labels(labels, targets)
            error_factor = None
        else:
            linear, result = self._fit_to_few_labels(labels, targets)
            out_of_fold = result.logits[np.argsort(result.rows)]
            error_factor = _error_factor(result)

        # Compare the predictions of models that have not learned from a text with its labels.
        out_of_fold_predictions = task.predictions(task.probabilities(out_of_fold), thresholds)
        is_right = task.are_correct(out_of_fold_predictions, targets)
        is_right &= class_has_other_texts(targets)

        _, texts = self._tokenized
        probabilities = task.probabilities(linear.logits(texts[: self.pool_size]))
        predictions = task.predictions(probabilities, thresholds)
        top, num_predicted = _top_classes(probabilities, predictions)
        uncertainty = task.uncertainty(probabilities, predictions)

        return Fit(
            top_classes=np.array(labels.class_numbers, dtype=np.int32)[top],
            top_probabilities=np.take_along_axis(probabilities, top, axis=1).astype(np.float32),
            num_predicted=num_predicted,
            suggestions=self._suggestions(uncertainty, labels.texts, SUGGESTED),
            is_right=is_right,
            error_factor=error_factor,
            seconds=time.monotonic() - began,
        )

    def predict_by_run(self, run: Path) -> Fit:
        """Predict the first texts of the pool by a trained model, and suggest texts among them.

        The classes of the model are the first ones of the session, in the same order.
        """
        began = time.monotonic()
        classifier = load_classifier(run, engine="numpy")
        num_texts = min(self.pool_size, PREDICTED_BY_RUN)
        probabilities = classifier.predict_proba(self.texts[:num_texts])
        predictions = classifier.task.predictions(probabilities, classifier.thresholds)
        top, num_predicted = _top_classes(probabilities, predictions)
        uncertainty = classifier.task.uncertainty(probabilities, predictions)

        return Fit(
            top_classes=top.astype(np.int32),
            top_probabilities=np.take_along_axis(probabilities, top, axis=1).astype(np.float32),
            num_predicted=num_predicted,
            suggestions=self._suggestions(uncertainty, (), SUGGESTED_AT_FIRST),
            is_right=np.zeros(0, dtype=bool),
            error_factor=None,
            seconds=time.monotonic() - began,
        )

    def _fit_to_few_labels(
        self, labels: Labels, targets: NDArray[Any]
    ) -> tuple[LinearModel, FewLabelsFit]:
        tokenizer, texts = self._tokenized
        is_unlabelled = np.ones(len(texts), dtype=bool)
        is_unlabelled[list(labels.texts)] = False
        is_unlabelled[self.pool_size :] = False
        rows = np.concatenate([labels.texts, np.flatnonzero(is_unlabelled)]).astype(np.int64)

        chosen = texts.take(rows)
        num_labelled = len(labels.texts)
        config = TrainConfig()
        sizes = CorpusSizes(
            labelled=num_labelled,
            unlabelled=len(sample_rows(chosen, num_labelled, MAX_TOKENS)) - num_labelled,
            classes=len(labels.class_names),
        )
        tokens_per_text = float(texts.lengths_within(MAX_TOKENS).mean())
        effort = chosen_effort(sizes, tokens_per_text, config)

        # Each text is a group.
        labelled = LabelledTexts(texts=chosen, labels=targets, split_groups=np.arange(len(targets)))
        names = tokenize(tokenizer, names_as_texts(labels.class_names), max_seq_len=MAX_TOKENS)
        return fit_linear_from_few_labels(
            labelled,
            names,
            _options(labels),
            config=config,
            effort_choice=EffortChoice(effort),
        )

    def _fit_to_labels(self, labels: Labels, targets: NDArray[Any]) -> tuple[LinearModel, Logits]:
        """Fit to labels alone; return the model and out-of-fold logits of the labelled texts."""
        _, texts = self._tokenized
        counted = CountedTexts.of(
            texts.take(np.array(labels.texts, dtype=np.int64)), targets, _options(labels)
        )
        num_texts = len(labels.texts)
        num_folds = FOLDS
        if num_texts <= MAX_SMALL_FOLDS:
            num_folds = SMALL_FOLDS.num_folds
        folds = split_into_folds(np.arange(num_texts), count=num_folds)
        calibration = cross_validate(counted, folds, groups=RowGroups.single(num_texts))
        linear = fit_calibrated(counted, calibration)
        return linear, calibration.logits[np.argsort(np.concatenate(folds))]

    def _suggestions(self, uncertainty: Floats, labelled: Sequence[int], number: int) -> list[int]:
        """Choose texts that represent many texts of which the model is unsure, as indices.

        `uncertainty` is for each text of the pool, or for its first ones.
        """
        similarities = self._similarities
        num_texts = len(similarities)
        return choose_representatives(
            similarities,
            uncertainty[:num_texts],
            [index for index in labelled if index < num_texts],
            number,
        )


def chosen_effort(sizes: CorpusSizes, tokens_per_text: float, config: TrainConfig) -> Effort:
    """The first effort of a fit to few labels that is at most `MAX_WORK`, or the least one."""
    efforts: Sequence[Effort] = FEW_LABELS_EFFORTS
    if sizes.labelled <= MAX_SMALL_FOLDS:
        efforts = (SMALL_FOLDS, *FEW_LABELS_EFFORTS)

    num_machines = SINGLE_LABEL.num_one_vs_rest(sizes.classes)
    work_of_fit = sizes.labelled * num_machines * tokens_per_text
    for effort in efforts:
        num_fits = count_fits(effort, sizes, config, num_held_out=0, with_teacher=False)
        if num_fits * work_of_fit <= MAX_WORK:
            return effort
    return efforts[-1]


def _top_classes(
    probabilities: Floats, predictions: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Choose the classes that the guess for each text lists, and count those that are predicted.

    `probabilities` are (texts, classes); `predictions` are class numbers, (texts,), or,
    multi-label, whether each text gets each label, (texts, classes). The chosen columns are (texts,
    top), the predicted ones first; their counts are (texts,).
    """
    if predictions.ndim == 1:
        top = np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP]
        return top, np.ones(len(top), dtype=np.int32)

    # Each label has a threshold of its own, so a label that is not predicted may be more probable
    # than one that is. The last key of `lexsort` counts first.
    num_predicted = predictions.sum(axis=1)
    num_top = max(TOP, num_predicted.max())
    top = np.lexsort((-probabilities, ~predictions), axis=1)[:, :num_top]
    return top, num_predicted.astype(np.int32)


def class_has_other_texts(targets: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether another labelled text has the class of each text, of several labels all, (labelled,).

    `targets` are class numbers, (labelled,), or multi-label indicators, (labelled, classes).
    Without the only text of a class, a model would not know the class. The models of a fold know it
    by its name, and would be right too often. The share of these texts in a random sample is the
    expected share of new texts whose class has no label yet: Good, "The Population Frequencies of
    Species" (1953), https://doi.org/10.1093/biomet/40.3-4.237.
    """
    if targets.ndim == 1:
        num_texts = np.bincount(targets)
        is_shared: NDArray[np.bool_] = num_texts[targets] > 1
        return is_shared

    has_one_text = targets.sum(axis=0) == 1
    has_unshared_label: NDArray[np.bool_] = targets[:, has_one_text].sum(axis=1) > 0
    return ~has_unshared_label


def _error_factor(result: FewLabelsFit) -> float | None:
    """The factor by which errors would fall with twice as many labels; None if it is unknown."""
    if result.accuracy_with_twice is None or result.accuracy == 1:
        return None
    return (1 - result.accuracy_with_twice) / (1 - result.accuracy)


def _options(labels: Labels) -> LinearOptions:
    class_weights = np.ones(len(labels.class_names), dtype=np.float32)
    return LinearOptions(MAX_TOKENS, char_ngrams=True, class_weights=class_weights)


def _targets(labels: Labels) -> NDArray[Any]:
    """The class number of each labelled text, (labelled,); multi-label, 0 or 1 for each label."""
    number_of = {name: number for number, name in enumerate(labels.class_names)}
    if not labels.is_multi_label:
        return np.array([number_of[names[0]] for names in labels.labels], dtype=np.int64)

    indicators = np.zeros((len(labels.labels), len(labels.class_names)), dtype=np.int8)
    for row, names in enumerate(labels.labels):
        for name in names:
            indicators[row, number_of[name]] = 1
    return indicators


def has_enough(labels: Labels) -> bool:
    """Whether there is something to learn: two classes, or one label of a multi-label task."""
    least = 1 if labels.is_multi_label else 2
    return len(labels.class_names) >= least
