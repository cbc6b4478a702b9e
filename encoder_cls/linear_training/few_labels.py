"""Fit a linear model to few labels, with the help of texts without labels.

Cross-validation (`out_of_fold`) chooses among the last round of self-training, the mean of all
rounds (`self_training`), and a model of the labels alone.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.corpus import FeatureCorpus
from encoder_cls.linear_training.cost import (
    ALL_AS_PLANNED,
    COUNTING_WORK,
    FEW_LABELS_EFFORTS,
    CorpusSizes,
    Effort,
    EffortChoice,
    count_fits,
    count_work,
    expect_work,
)
from encoder_cls.linear_training.features import CountedTexts, LabelledTexts, LinearOptions
from encoder_cls.linear_training.folds import split_into_folds
from encoder_cls.linear_training.model_selection import fit_calibrated
from encoder_cls.linear_training.out_of_fold import (
    LABELS_ONLY,
    CrossValidation,
    classifiers_by_kind,
    unlabelled_rows,
)
from encoder_cls.linear_training.self_training import SelfTraining
from encoder_cls.metrics.intervals import Interval, wilson_interval
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.tasks import SINGLE_LABEL
from encoder_cls.text.tokens import TokenizedTexts


class FewLabelsFit(NamedTuple):
    """How a model was fitted to few labels, and its accuracy out of fold, with a 95% interval.

    Attributes:
        kind: `LABELS_ONLY`, `LAST_ROUND` or `MEAN_OF_ROUNDS`.
        accuracy_before: that of `LABELS_ONLY`.
        accuracy_with_twice: with twice as many labels; None without enough labels or time.
        teacher: a model that has not learned from the validation texts; None unless requested.
        rows: the labelled texts, fold by fold; validation texts come first.
        logits: out of fold, of `rows`, (texts, classes).
    """

    kind: str
    accuracy_before: float
    accuracy: float
    interval: Interval
    accuracy_with_twice: float | None
    teacher: LinearModel | None
    rows: NDArray[np.int64]
    logits: Logits
    effort: Effort


def fit_linear_from_few_labels(
    labelled: LabelledTexts,
    names: TokenizedTexts,
    options: LinearOptions,
    *,
    config: TrainConfig,
    with_teacher: bool = False,
    effort_choice: EffortChoice = ALL_AS_PLANNED,
) -> tuple[LinearModel, FewLabelsFit]:
    """Fit a linear model by self-training, or to the labels alone if that is more accurate.

    The task is single-label. A sample of the unlabelled texts, which follow the labelled ones, is
    used. Validation texts are one more fold of the cross-validation; the final model learns from
    them, too, but the teacher does not. `names` are class names as texts.

    Raises:
        TooLittleTimeError: there is not enough time for the least effort.
    """
    corpus = FeatureCorpus(labelled, names, options, dimensions=config.lsa_dimensions)
    training = SelfTraining(corpus, config)

    validation_rows = labelled.validation_rows
    num_fits = partial(
        count_fits,
        sizes=CorpusSizes(len(labelled), len(corpus.unlabelled), len(corpus.class_weights)),
        config=config,
        num_held_out=len(validation_rows),
        with_teacher=with_teacher,
    )
    effort = effort_choice.choose(
        FEW_LABELS_EFFORTS, seconds_of_fit=training.seconds_to_fit, num_fits=num_fits
    )
    _expect_work(corpus, num_fits=num_fits(effort, time_without_lsa=1))

    # Predict each labelled text by models that have not learned from it, and keep the best kind.
    cross_validation = CrossValidation(corpus, training, effort)
    folds = split_into_folds(labelled.split_groups, first=validation_rows, count=effort.num_folds)
    predictions = cross_validation.predict(folds)
    kind = predictions.best_kind()
    calibration = predictions.calibrations[kind]
    accuracy = predictions.accuracy(kind)
    accuracy_with_twice = cross_validation.accuracy_with_twice(kind, accuracy, folds)

    def fit(rows: NDArray[np.int64]) -> LinearModel:
        if kind == LABELS_ONLY:
            counted = CountedTexts.of(
                labelled.texts.take(rows), labelled.labels[rows], options, labelled.weights_of(rows)
            )
            return fit_calibrated(counted, calibration)

        rounds = training.learn(rows, unlabelled_rows(corpus, effort), effort.rounds)
        classifiers = classifiers_by_kind(rounds)[kind].calibrated(calibration)
        return corpus.vocabulary.linear_model(classifiers.weights, classifiers.biases)

    all_rows = np.arange(len(labelled))
    linear = fit(all_rows)

    # Without validation texts, the final model is the teacher, too.
    teacher = None
    if with_teacher:
        teacher = linear
    if with_teacher and len(validation_rows):
        teacher = fit(np.setdiff1d(all_rows, validation_rows))

    num_texts = predictions.num_independent(kind)
    return linear, FewLabelsFit(
        kind=kind,
        accuracy_before=predictions.accuracy(LABELS_ONLY),
        accuracy=accuracy,
        interval=wilson_interval(accuracy * num_texts, num_texts),
        accuracy_with_twice=accuracy_with_twice,
        teacher=teacher,
        rows=np.concatenate(folds),
        logits=calibration.logits,
        effort=effort,
    )


def _expect_work(corpus: FeatureCorpus, *, num_fits: float) -> None:
    """Expect all fits; they count alike, with and without latent semantics."""
    num_classifiers = SINGLE_LABEL.num_one_vs_rest(len(corpus.class_weights))
    work_of_counting = COUNTING_WORK * corpus.first_name
    work_of_fits = num_classifiers * len(corpus.labels) * num_fits

    expect_work(work_of_counting + work_of_fits)
    count_work(work_of_counting)
