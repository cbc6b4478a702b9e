"""Fit a model to the few labelled texts of a pool, and predict all texts (`TextPool.fit`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.config.schema import TrainConfig
from encoder_cls.data.label_names import names_as_texts
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
from encoder_cls.linear_training.text_pool import MAX_TOKENS
from encoder_cls.metrics.intervals import wilson_interval
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, Task
from encoder_cls.text.tokenizer import tokenize
from encoder_cls.text.tokens import TokenizedTexts

# The most work of a fit, in tokens that a machine learns from: about a minute on two cores. A fit
# that would be more work has fewer rounds of self-training, or learns from a sample of the pool.
MAX_WORK = 20_000_000
# The first choice of an effort: folds that hold out so few labels that a model without them is
# hardly worse than the model in use. The five folds of a training hold out a fifth of the labels,
# and the estimated accuracy would be that of a model with fewer labels. Twenty folds take 1.5 times
# as long as twelve, and raise the estimate by less than half a point:
# docs/experiments/accuracy.md#accuracy-that-the-label-page-shows.
SMALL_FOLDS = PLANNED._replace(
    key="small_folds", name="12 small folds", num_folds=12, tries_all_c_values=False
)
# The maximum number of labels for small folds. With more labels, a fifth of them changes little.
MAX_SMALL_FOLDS = 300
# The maximum number of labels for the fit to few labels, as in training.
MAX_FEW_LABELS = 2000
# The probability from which a label is predicted in a multi-label task.
THRESHOLD = 0.5
# The variance of an estimated accuracy, relative to that of the accuracy on as many independent
# texts. The models that predict the texts learn from nearly the same labels, so they are often
# wrong together. Measured in simulated sessions:
# docs/experiments/accuracy.md#accuracy-that-the-label-page-shows.
VARIANCE_FACTOR = 1.4

HasLabel = NDArray[np.bool_]
"""Whether each labelled text has each label, (labelled, classes)."""


class FewLabels(NamedTuple):
    """The labels of some texts, by their numbers."""

    texts: NDArray[np.int64]
    class_names: Sequence[str]
    has_label: HasLabel
    task: Task

    @classmethod
    def of(
        cls,
        labels: Mapping[int, str] | Mapping[int, Sequence[str]],
        class_names: Sequence[str] | None,
    ) -> Self:
        """Check the arguments of `TextPool.fit`, which may raise a `ValueError`."""
        task: Task = MULTI_LABEL
        if any(isinstance(label, str) for label in labels.values()):
            task = SINGLE_LABEL
        lists = [[label] if isinstance(label, str) else label for label in labels.values()]
        found = {name for names in lists for name in names}
        class_names = sorted(found) if class_names is None else class_names
        if found - set(class_names):
            raise ValueError(f"no class {min(found - set(class_names))!r}")
        if len(class_names) < task.min_classes:
            raise ValueError(f"too few classes: {len(class_names)} of {task.min_classes}")
        return cls(
            texts=np.array(list(labels), dtype=np.int64),
            class_names=class_names,
            has_label=np.array([[name in names for name in class_names] for names in lists]),
            task=task,
        )

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def targets(self) -> NDArray[Any]:
        """Class numbers, or indicators."""
        if self.task is MULTI_LABEL:
            return self.has_label.astype(np.int8)
        return cast("NDArray[Any]", self.has_label.argmax(axis=1))

    @property
    def options(self) -> LinearOptions:
        """The options of the model."""
        class_weights = np.ones(len(self.class_names), dtype=np.float32)
        return LinearOptions(MAX_TOKENS, char_ngrams=True, class_weights=class_weights)


class PoolFit(NamedTuple):
    """What a model fitted to a few labels predicts for the texts of a pool.

    Attributes:
        class_names: those of labelled texts.
        probabilities: (texts, classes).
        is_predicted: whether a text gets a label, (texts, classes).
        uncertainty: from 0 to 1.
        is_right: for each labelled text, whether a model that has not learned from it predicts
            exactly its labels.
        error_factor: by which errors would fall with twice as many labels, from 0 to 1; None if
            unknown.
    """

    class_names: Sequence[str]
    probabilities: NDArray[np.float64]
    is_predicted: NDArray[np.bool_]
    uncertainty: NDArray[np.float64]
    is_right: NDArray[np.bool_]
    error_factor: float | None

    def labels_of(self, text: int) -> list[str]:
        """The predicted labels of a text."""
        numbers = np.flatnonzero(self.is_predicted[text]).tolist()
        return [self.class_names[number] for number in numbers]


def fit_pool(
    tokenizer: Tokenizer, texts: TokenizedTexts, labels: FewLabels, *, pool_size: int
) -> PoolFit:
    """Fit to all texts, and predict the first `pool_size`; the others all have labels."""
    if labels.task is MULTI_LABEL or len(labels) > MAX_FEW_LABELS:
        linear, out_of_fold = _fit_to_labels(texts, labels)
        error_factor = None
    else:
        linear, found = _fit_to_few_labels(tokenizer, texts, labels, pool_size=pool_size)
        out_of_fold = found.logits[np.argsort(found.rows)]
        error_factor = _error_factor(found)

    # Compare the predictions of models that have not learned from a text with its labels.
    _, is_predicted, _ = _predictions(labels, out_of_fold)
    is_exact = (is_predicted == labels.has_label).all(axis=1)

    probabilities, is_predicted, uncertainty = _predictions(
        labels, linear.logits(texts[:pool_size])
    )
    return PoolFit(
        class_names=labels.class_names,
        probabilities=probabilities,
        is_predicted=is_predicted,
        uncertainty=uncertainty,
        is_right=is_exact & class_has_other_texts(labels.has_label),
        error_factor=error_factor,
    )


def _predictions(
    labels: FewLabels, logits: Logits
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    task = labels.task
    thresholds = [THRESHOLD] * len(labels.class_names)
    probabilities = task.probabilities(logits)
    predictions = task.predictions(probabilities, thresholds)

    is_predicted = predictions
    if task is SINGLE_LABEL:
        is_predicted = predictions[:, None] == np.arange(len(labels.class_names))
    return probabilities, is_predicted, task.uncertainty(probabilities, predictions)


def _fit_to_few_labels(
    tokenizer: Tokenizer, texts: TokenizedTexts, labels: FewLabels, *, pool_size: int
) -> tuple[LinearModel, FewLabelsFit]:
    is_unlabelled = np.arange(len(texts)) < pool_size
    is_unlabelled[labels.texts] = False
    chosen = texts.take(np.concatenate([labels.texts, np.flatnonzero(is_unlabelled)]))

    config = TrainConfig()
    sizes = CorpusSizes(
        labelled=len(labels),
        unlabelled=len(sample_rows(chosen, len(labels), MAX_TOKENS)) - len(labels),
        classes=len(labels.class_names),
    )
    tokens_per_text = float(texts.lengths_within(MAX_TOKENS).mean())
    effort = chosen_effort(sizes, tokens_per_text, config)

    # Each text is a group.
    labelled = LabelledTexts(
        texts=chosen, labels=labels.targets, split_groups=np.arange(len(labels))
    )
    names = tokenize(tokenizer, names_as_texts(labels.class_names), max_seq_len=MAX_TOKENS)
    return fit_linear_from_few_labels(
        labelled, names, labels.options, config=config, effort_choice=EffortChoice(effort)
    )


def _fit_to_labels(texts: TokenizedTexts, labels: FewLabels) -> tuple[LinearModel, Logits]:
    """Fit to labels alone; the logits of the labelled texts are out of fold."""
    counted = CountedTexts.of(texts.take(labels.texts), labels.targets, labels.options)
    num_folds = FOLDS
    if len(labels) <= MAX_SMALL_FOLDS:
        num_folds = SMALL_FOLDS.num_folds
    folds = split_into_folds(np.arange(len(labels)), count=num_folds)
    calibration = cross_validate(counted, folds, groups=RowGroups.single(len(labels)))
    linear = fit_calibrated(counted, calibration)
    return linear, calibration.logits[np.argsort(np.concatenate(folds))]


def chosen_effort(sizes: CorpusSizes, tokens_per_text: float, config: TrainConfig) -> Effort:
    """The first effort of at most `MAX_WORK`, or the least one."""
    efforts: Sequence[Effort] = FEW_LABELS_EFFORTS
    if sizes.labelled <= MAX_SMALL_FOLDS:
        efforts = (SMALL_FOLDS, *FEW_LABELS_EFFORTS)

    num_classifiers = SINGLE_LABEL.num_one_vs_rest(sizes.classes)
    work_of_fit = sizes.labelled * num_classifiers * tokens_per_text
    for effort in efforts:
        num_fits = count_fits(effort, sizes, config, num_held_out=0, with_teacher=False)
        if num_fits * work_of_fit <= MAX_WORK:
            return effort
    return efforts[-1]


def class_has_other_texts(has_label: HasLabel) -> NDArray[np.bool_]:
    """Whether all classes of each labelled text have another labelled text.

    Without the only text of a class, a model would not know it; the models of a fold know its name,
    and would be right too often. The share of these texts in a random sample is that of new texts
    whose class has no label yet: Good, "The Population Frequencies of Species" (1953),
    https://doi.org/10.1093/biomet/40.3-4.237.
    """
    has_one_text = has_label.sum(axis=0) == 1
    return np.asarray(~has_label[:, has_one_text].any(axis=1))


def _error_factor(found: FewLabelsFit) -> float | None:
    if found.accuracy_with_twice is None or found.accuracy == 1:
        return None
    return (1 - found.accuracy_with_twice) / (1 - found.accuracy)


class AccuracyEstimate(NamedTuple):
    """How often a model is right on new texts, with the 95% interval.

    Attributes:
        labels: those learned from.
        with_twice: the accuracy with twice as many labels, if known.
    """

    labels: int
    accuracy: float
    low: float
    high: float
    with_twice: float | None


def estimate_accuracy(
    is_right: NDArray[np.bool_],
    sample: Collection[int] | None = None,
    *,
    error_factor: float | None = None,
) -> AccuracyEstimate:
    """Estimate how often a model is right on new texts.

    Args:
        is_right: `PoolFit.is_right`, of models that learned from nearly all other labels.
        sample: places of labelled texts that were drawn at random; None if all were. Chosen texts
            are easier or harder than new ones.
    """
    rows = list(range(len(is_right)) if sample is None else sample)
    accuracy = float(is_right[rows].mean())
    num_independent = len(rows) / VARIANCE_FACTOR
    low, high = wilson_interval(accuracy * num_independent, num_independent)

    with_twice = None
    if error_factor is not None:
        with_twice = 1 - (1 - accuracy) * error_factor
    return AccuracyEstimate(len(is_right), accuracy, low, high, with_twice)
