"""The usual fit of a linear model: C and calibration are chosen on texts not learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.linear_training.calibration import Calibration, calibrate
from encoder_cls.linear_training.cost import C_VALUES_TRIED, expect_work
from encoder_cls.linear_training.features import (
    CountedTexts,
    LabelledTexts,
    LinearOptions,
    count_matrix,
)
from encoder_cls.linear_training.folds import MIN_HELD_OUT, split_into_folds
from encoder_cls.linear_training.nb_svm import OneVsRest, fit_one_vs_rest
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, SINGLE_LABEL, task_of
from encoder_cls.text.tokens import TokenizedTexts

# The values of LinearSVC's C to choose from, increasing. A lower C regularizes more, which is best
# if many labels are wrong or classes have few texts.
C_VALUES = {
    SINGLE_LABEL: (0.125, 0.25, 0.5, 1.0, 2.0),
    MULTI_LABEL: (0.1, 0.3, 1.0),
}

# The value of C if only one value is tried.
USUAL_C = {SINGLE_LABEL: 1.0, MULTI_LABEL: 0.3}


def fit_linear(
    texts: CountedTexts,
    *,
    held_out: LabelledTexts | None = None,
    split_groups: NDArray[np.int64] | None = None,
    is_quick: bool = False,
    on_first: Callable[[LinearModel], None] | None = None,
) -> tuple[LinearModel, Calibration]:
    """Fit a linear model, and choose its C and its calibration.

    They are chosen on held-out texts or, with fewer than `MIN_HELD_OUT` groups of these, by
    cross-validation, which keeps groups together; by default each text is a group.

    A quick fit tries only the usual C, and calibrates on few `held_out` texts, too, or on a single
    fold.

    `on_first` receives the model of the first C, but not in cross-validation.
    """
    task = task_of(texts.labels)
    c_values: Sequence[float] = C_VALUES[task]
    enough = MIN_HELD_OUT[task]
    if is_quick:
        c_values = [USUAL_C[task]]
        enough = 1

    if held_out is not None and RowGroups(held_out.split_groups).num_groups >= enough:
        return _fit_and_choose(texts, held_out, c_values, on_first)

    # Too few texts are held out to choose on, so cross-validate, and then learn from all texts.
    if split_groups is None:
        split_groups = np.arange(len(texts))
    folds = split_into_folds(split_groups, enough=enough)
    calibration = cross_validate(texts, folds, c_values, groups=RowGroups(split_groups))
    return fit_calibrated(texts, calibration), calibration


def _fit_and_choose(
    texts: CountedTexts,
    held_out: LabelledTexts,
    c_values: Sequence[float],
    on_first: Callable[[LinearModel], None] | None,
) -> tuple[LinearModel, Calibration]:
    groups = RowGroups(held_out.split_groups)
    vocabulary = texts.vocabulary
    counts = count_matrix(vocabulary.pieces(held_out.texts), vocabulary.feature_ids)
    features = vocabulary.tfidf(counts)
    classifiers_by_c: dict[float, OneVsRest] = {}

    def fit_and_calibrate(svm_c: float) -> Calibration:
        classifiers = _fit_counted(texts, svm_c=svm_c)
        candidate = calibrate(
            classifiers.margins(features), held_out.labels, texts.class_weights, groups
        )
        candidate = candidate._replace(svm_c=svm_c)

        if on_first and not classifiers_by_c:
            on_first(_linear_model(texts, classifiers, candidate))
        classifiers_by_c[svm_c] = classifiers
        return candidate

    best = _best_c(fit_and_calibrate, c_values, work=texts.num_classifiers * len(texts))
    return _linear_model(texts, classifiers_by_c[best.svm_c], best), best


def fit_calibrated(texts: CountedTexts, calibration: Calibration) -> LinearModel:
    """Fit with a C and a calibration that were chosen before."""
    classifiers = _fit_counted(texts, svm_c=calibration.svm_c)
    return _linear_model(texts, classifiers, calibration)


def _fit_counted(texts: CountedTexts, *, svm_c: float) -> OneVsRest:
    return fit_one_vs_rest(
        texts.features,
        texts.labels,
        texts.class_weights,
        texts.weights,
        svm_c=svm_c,
    )


def _linear_model(
    texts: CountedTexts, classifiers: OneVsRest, calibration: Calibration
) -> LinearModel:
    classifiers = classifiers.calibrated(calibration)
    return texts.vocabulary.linear_model(
        classifiers.weights, classifiers.biases, task_of(texts.labels)
    )


# The C of the models that predict out of fold. It is low, because labels may be wrong.
OUT_OF_FOLD_C = 0.25


def out_of_fold_logits(
    texts: TokenizedTexts,
    labels: NDArray[Any],
    all_options: Sequence[LinearOptions],
    *,
    split_groups: NDArray[np.int64],
    svm_c: float = OUT_OF_FOLD_C,
) -> list[Logits]:
    """Predict all texts out of fold, with each of several options that differ in class weights.

    The logits, (texts, classes), are in the order of the texts.
    """
    counted = CountedTexts.of(texts, labels, all_options[0])
    folds = split_into_folds(split_groups)

    # Cross-validation returns logits fold by fold. This order returns them to that of the texts.
    order = np.argsort(np.concatenate(folds))

    logits = []
    for options in all_options:
        vocabulary = counted.vocabulary._replace(options=options)
        calibration = cross_validate(
            replace(counted, vocabulary=vocabulary),
            folds,
            [svm_c],
            groups=RowGroups(split_groups),
        )
        logits.append(calibration.logits[order])
    return logits


def cross_validate(
    texts: CountedTexts,
    folds: Sequence[NDArray[np.int64]],
    c_values: Sequence[float] = (),
    *,
    groups: RowGroups,
    text_weights: NDArray[np.float64] | None = None,
) -> Calibration:
    """Choose C and a calibration by cross-validation.

    Each fold, the indices of its texts, is predicted by a model that has learned from all others.
    The logits are fold by fold, and so are `text_weights`, which count in calibration. The values
    of C increase.
    """
    counts = texts.counts
    labels = texts.labels
    class_weights = texts.class_weights
    held_out_rows = np.concatenate(folds)
    held_out_labels = labels[held_out_rows]
    held_out_groups = groups.subset(held_out_rows)

    def fit_and_calibrate(svm_c: float) -> Calibration:
        margins = []
        for fold in folds:
            # Learn from all texts outside the fold, and compute document frequencies of them, too.
            others = np.setdiff1d(np.arange(len(labels)), fold)
            vocabulary = texts.vocabulary.with_idf_of(counts[others])
            weights_of_others = None
            if texts.weights is not None:
                weights_of_others = texts.weights[others]
            classifiers = fit_one_vs_rest(
                vocabulary.tfidf(counts[others]),
                labels[others],
                class_weights,
                weights_of_others,
                svm_c=svm_c,
            )
            margins.append(classifiers.margins(vocabulary.tfidf(counts[fold])))

        candidate = calibrate(
            np.concatenate(margins), held_out_labels, class_weights, held_out_groups, text_weights
        )
        return candidate._replace(svm_c=svm_c)

    # In each fold, all texts outside the fold are learned from.
    num_learned = len(folds) * len(labels) - len(held_out_labels)
    return _best_c(
        fit_and_calibrate,
        c_values or C_VALUES[task_of(labels)],
        work=texts.num_classifiers * num_learned,
    )


# A lower C must reduce the loss by this share of the loss to be preferred. If two losses are
# similar, the higher C is more accurate.
MIN_GAIN = 0.01


def _best_c(
    fit_and_calibrate: Callable[[float], Calibration],
    c_values: Sequence[float],
    *,
    work: float,
) -> Calibration:
    """Find the best C, and try as few of the increasing values as possible.

    Begin with the last but one; try lower ones until the loss no longer falls, or the last one if
    none is better.
    """
    if len(c_values) == 1:
        return fit_and_calibrate(c_values[0])

    *lower, first, higher = c_values
    best = fit_and_calibrate(first)
    for num_tried, svm_c in enumerate(reversed(lower), start=1):
        # More values than usual are more work than was expected.
        if num_tried >= C_VALUES_TRIED:
            expect_work(work)

        candidate = fit_and_calibrate(svm_c)
        if candidate.loss > (1 - MIN_GAIN) * best.loss:
            break
        best = candidate

    if best.svm_c != first:
        return best

    candidate = fit_and_calibrate(higher)
    if candidate.loss < best.loss:
        return candidate
    return best
