"""Fit a linear classifier to few labels, with the help of texts without labels.

Self-training: a classifier of the labelled texts guesses the classes of the others, and the next one also learns from
its surest guesses, more of them each round, finally all. Out-of-fold answers decide between the classifier of the last
round, the mean of all rounds, and a classifier of the labels alone. Labelled texts are weighted so that they resemble
the texts without labels in the estimate of accuracy and in calibration. Each has one weight per feature and class.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.config.schema import TrainConfig
from encoder_cls.linear.calibration import Calibration, calibrate
from encoder_cls.linear.effort import (
    FEW_LABELS_EFFORTS,
    PENALTIES_TRIED,
    PLANNED,
    Effort,
    affordable_effort,
    seconds_of_machines,
)
from encoder_cls.linear.features import FeatureCorpus, Reading
from encoder_cls.linear.folds import FOLDS, NO_TEXTS, split_into_folds
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.linear.nb_svm import (
    USUAL_PENALTY,
    OneVsRest,
    cross_validate,
    fit_linear,
    fit_machines,
    naive_bayes_ratios,
    targets_of_machines,
)
from encoder_cls.linear.pool_weights import effective_size, weights_like_pool
from encoder_cls.metrics.intervals import Interval, wilson_interval
from encoder_cls.metrics.logits import SINGLE_LABEL, Logits, softmax
from encoder_cls.text.tokens import TokenizedTexts

PSEUDO_LABEL_WEIGHT = 0.1  # of a text with a guessed class
NAIVE_BAYES_WEIGHT = np.float32(0.5)  # of its margins, where the SVM's count 1
SMOOTHING = 0.1  # added to the count of each word in each class
ALIGNMENTS, ALIGNMENT_STEP = 50, 0.05  # iterations
LEAST_SHARE = 1e-4  # of a class, so that its logarithm is finite
NEVER = -3.0  # the bias of a class without a text, in standard deviations
MOST_SCALED = 1000  # texts, to measure standard deviations of margins
# Unlabelled texts, and these times classes, in cross-validation.
MOST_OUT_OF_FOLD, MOST_WORK = (
    5000,
    250_000,
)
STANDARD_ERRORS = 1.0  # by which another kind must be more accurate than the last round
FEWEST_EXTRAPOLATED = 40  # labelled texts: half of them must still teach something

ALONE, LAST, MEAN = "labels alone", "self-training", "self-training, mean of its rounds"


class FewLabels(NamedTuple):
    """The kind of classifier that was kept, its out-of-fold accuracy and answers, and the teacher of an encoder."""

    kept: str  # `ALONE`, `LAST` or `MEAN`
    accuracy_before: float  # out of fold, of the labels alone
    accuracy: float
    interval: Interval  # of the accuracy
    accuracy_with_twice: float | None  # as many labels; None with too few to extrapolate from
    # On request: a classifier that has not learned from `held_out`.
    teacher: LinearClassifier | None
    rows: NDArray[np.int64]  # the labelled texts, those `held_out` first
    logits: Logits  # of these, out of fold
    effort: Effort = PLANNED


def fit_linear_from_few_labels(  # noqa: PLR0913
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    names: TokenizedTexts,
    reading: Reading,
    *,
    config: TrainConfig,
    together: NDArray[np.int64],
    held_out: NDArray[np.int64] = NO_TEXTS,
    with_teacher: bool = False,
    effort: Effort = PLANNED,
    end: float | None = None,
) -> tuple[LinearClassifier, FewLabels]:
    """Fit a linear classifier by self-training, unless the labels alone are more accurate.

    Args:
        texts: those with labels, then those without, which are sampled.
        labels: of the first texts.
        names: the class names as texts.
        reading: what is read of texts, and the weight of each class.
        config: which techniques are used.
        together: the group of each labelled text, as in `split_into_folds`.
        held_out: labelled texts that are one fold of the cross-validation.
        with_teacher: also fit a classifier that has not learned from the texts held out.
        effort: how much work the fit does, unless its end is known.
        end: of the time for the fit, by `time.monotonic`, which chooses one of the
            `FEW_LABELS_EFFORTS`.

    Raises:
        TooLittleTimeError: there is not enough time until `end` for the least effort.
    """
    corpus = FeatureCorpus(texts, labels, names, reading, dimensions=config.lsa_dimensions)
    if end is not None:
        seconds_of_fit = _SelfTraining(corpus, config, PLANNED).seconds_to_fit()

        def seconds_of(effort: Effort) -> float:
            fits = fits_of(effort, corpus, config, held_out, with_teacher=with_teacher)
            return seconds_of_fit * fits

        effort = affordable_effort(FEW_LABELS_EFFORTS, seconds_of, seconds=end - time.monotonic())

    training = _SelfTraining(corpus, config, effort)
    parts = split_into_folds(together, first=held_out, count=effort.num_folds)
    all_rows = np.arange(len(labels))
    rows = np.concatenate(parts)
    ways, text_weights = training.cross_validate(parts)
    right = {name: _is_right(way, labels[rows]) for name, way in ways.items()}
    kept = _best(right)
    accuracy = float(np.average(right[kept], weights=text_weights))
    size = effective_size(text_weights)

    def learned_from(some: NDArray[np.int64]) -> LinearClassifier:
        if kept == ALONE:
            return fit_linear(texts.take(some), labels[some], reading, choice=ways[ALONE])[0]
        machines = training.learn(some, training.unlabelled)[kept]
        return corpus.vocabulary.classifier(*machines.calibrated(ways[kept]))

    with_twice = None
    if effort.extrapolates and len(labels) >= FEWEST_EXTRAPOLATED and len(parts) > 2:
        halves = [np.concatenate(parts[::2]), np.concatenate(parts[1::2])]
        ways_of_halves, weights_of_halves = training.cross_validate(halves)
        right_of_halves = _is_right(ways_of_halves[kept], labels[np.concatenate(halves)])
        with_fewer = float(np.average(right_of_halves, weights=weights_of_halves))
        with_twice = extrapolated(accuracy, with_fewer, times=2 - 2 / len(parts))
    classifier = teacher = learned_from(all_rows)
    if with_teacher and len(held_out):
        teacher = learned_from(np.setdiff1d(all_rows, held_out))
    return classifier, FewLabels(
        kept=kept,
        accuracy_before=float(np.average(right[ALONE], weights=text_weights)),
        accuracy=accuracy,
        interval=wilson_interval(accuracy * size, size),
        accuracy_with_twice=with_twice,
        teacher=teacher if with_teacher else None,
        rows=rows,
        logits=ways[kept].logits,
        effort=effort,
    )


def _most_cross_validated(num_classes: int) -> int:
    """The most unlabelled texts that each fold of the cross-validation learns from."""
    return max(1, min(MOST_OUT_OF_FOLD, MOST_WORK // num_classes))


# The time of a fit without coordinates of latent semantics, relative to one with these.
TIME_ALONE = 0.6


def fits_of(
    effort: Effort,
    corpus: FeatureCorpus,
    config: TrainConfig,
    held_out: NDArray[np.int64],
    *,
    with_teacher: bool,
) -> float:
    """Compute the work of an effort, in fits to all labelled texts.

    Time grows with the texts, so a fit to some of them is a part of a fit, and parts add up.

    Args:
        effort: whose work is wanted.
        corpus: the texts.
        config: which techniques are used.
        held_out: labelled texts that are one more fold of the cross-validation.
        with_teacher: whether a classifier that has not learned from these is fitted as well.
    """
    num_labelled = len(corpus.labels)
    num_folds = effort.num_folds
    if len(held_out):
        num_folds += 1
    share_learned = 1 - 1 / num_folds

    num_final = 1
    if with_teacher and len(held_out):
        num_final = 2

    # The labels alone: each penalty in each fold.
    num_penalties = PENALTIES_TRIED if effort.tries_all_penalties else 1
    fits = TIME_ALONE * num_penalties * num_folds * share_learned
    if not effort.self_trains:
        return fits + TIME_ALONE * num_final

    num_unlabelled = len(corpus.unlabelled)
    if effort.most_unlabelled is not None:
        num_unlabelled = min(num_unlabelled, effort.most_unlabelled)
    num_cross_validated = min(num_unlabelled, _most_cross_validated(len(corpus.class_weights)))

    rounds = effort.rounds
    if not config.self_training or num_unlabelled == 0:
        rounds = ()

    # Self-training: a round of labelled texts, then rounds with a share of the unlabelled ones.
    def learning(share_labelled: float, unlabelled: int) -> float:
        of_labelled = (1 + len(rounds)) * share_labelled
        of_unlabelled = sum(rounds) * unlabelled / num_labelled
        return of_labelled + of_unlabelled

    fits += num_folds * learning(share_learned, num_cross_validated)
    if effort.extrapolates:
        fits += 2 * learning(0.5, num_cross_validated)
    return fits + num_final * learning(1.0, num_unlabelled)


class _SelfTraining:
    """In each round fits an NB-SVM of n-grams and latent semantics, plus naive Bayes of words.

    Attributes:
        unlabelled: the rows of the unlabelled texts that it learns from.
    """

    def __init__(self, corpus: FeatureCorpus, config: TrainConfig, effort: Effort) -> None:
        self._corpus, self._config, self._effort = corpus, config, effort

        self.unlabelled = corpus.unlabelled
        if effort.most_unlabelled is not None:
            drawn = np.random.default_rng(0).permutation(corpus.unlabelled)
            self.unlabelled = np.sort(drawn[: effort.most_unlabelled])

        # The last classes have one.
        self._num_machines = SINGLE_LABEL.num_one_vs_rest(len(corpus.class_weights))
        self._inputs = sp.hstack([corpus.features, sp.csr_matrix(corpus.coordinates)], format="csr")
        self._names = corpus.names if config.label_names_as_texts else NO_TEXTS
        self._sample = corpus.features[
            np.random.default_rng(0).permutation(corpus.first_name)[:MOST_SCALED]
        ]

    def learn(self, rows: NDArray[np.int64], unlabelled: NDArray[np.int64]) -> dict[str, OneVsRest]:
        """Learn from labelled texts and names, then in rounds from other texts as well; returns `LAST` and `MEAN`."""
        corpus, labels = self._corpus, self._corpus.labels[rows]
        shares = shrunk_shares(np.bincount(labels, minlength=len(corpus.class_weights)))
        of_class = np.diag(corpus.class_weights.astype(np.float64))
        known = np.concatenate([rows, self._names])
        targets = of_class[np.concatenate([labels, self._names - corpus.first_name])]
        shares_of_rounds = self._effort.rounds
        if not self._config.self_training or not len(unlabelled):
            shares_of_rounds = ()

        rounds = [self._fit(known, targets)]
        for share in shares_of_rounds:
            margins = rounds[-1].margins(corpus.features[unlabelled])
            margins = np.hstack([-margins, margins]) if margins.shape[1] == 1 else margins
            chosen, guesses = surest(aligned(margins, shares), share)
            pseudo_targets = PSEUDO_LABEL_WEIGHT * of_class[guesses]
            rounds.append(
                self._fit(
                    np.concatenate([known, unlabelled[chosen]]),
                    np.concatenate([targets, pseudo_targets]),
                )
            )
        return {
            LAST: rounds[-1],
            MEAN: OneVsRest(*(np.mean(it, axis=0) for it in zip(*rounds, strict=True))),
        }

    def cross_validate(
        self, parts: Sequence[NDArray[np.int64]]
    ) -> tuple[dict[str, Calibration], NDArray[np.float64]]:
        """Calibrate each kind of classifier on out-of-fold margins; the default comes first.

        Also returns the weights with which the labelled texts, in the order of the folds, resemble all texts.
        """
        corpus = self._corpus
        labels = corpus.labels[np.concatenate(parts)]
        penalties: Sequence[float] = ()
        if not self._effort.tries_all_penalties:
            penalties = [USUAL_PENALTY[SINGLE_LABEL]]

        # Without self-training, the texts without labels have no answers: all texts count alike.
        if not self._effort.self_trains:
            alone = cross_validate(*corpus.labelled(), corpus.labels, parts, penalties)
            return {ALONE: alone}, np.ones(len(labels))

        most = _most_cross_validated(len(corpus.class_weights))
        unlabelled = np.random.default_rng(0).permutation(self.unlabelled)[:most]

        # With each fold a part of the texts without labels is held out, to be answered as texts that are as new.
        pool_parts = np.array_split(unlabelled, max(FOLDS, len(parts)))[: len(parts)]
        margins: dict[str, list[Logits]] = {LAST: [], MEAN: []}
        pool_margins: list[Logits] = []
        for fold, pool_part in zip(parts, pool_parts, strict=True):
            rows = np.setdiff1d(np.arange(len(corpus.labels)), fold)
            learned = self.learn(rows, np.setdiff1d(unlabelled, pool_part))
            for way, machines in learned.items():
                margins[way].append(machines.margins(corpus.unseen_features[fold]))
            pool_margins.append(learned[LAST].margins(corpus.features[pool_part]))

        # The weights come from the confidence of the default, as it is without weights.
        unweighted = calibrate(np.concatenate(margins[LAST]), labels, corpus.class_weights)
        scaled = np.concatenate(pool_margins) * unweighted.scale + unweighted.shift
        text_weights = weights_like_pool(
            leads(unweighted.logits),
            leads(SINGLE_LABEL.margins_to_logits(scaled.astype(np.float32))),
            pool_size=len(corpus.unlabelled),
        )

        ways = {
            way: calibrate(np.concatenate(of_way), labels, corpus.class_weights, text_weights)
            for way, of_way in margins.items()
        }
        counts = corpus.labelled()
        alone = cross_validate(*counts, corpus.labels, parts, penalties, text_weights=text_weights)
        if not len(unlabelled):  # there is a single round
            return {ALONE: alone, LAST: ways[LAST]}, text_weights
        return {**ways, ALONE: alone}, text_weights

    def seconds_to_fit(self) -> float:
        """Estimate the time of one fit to all labelled texts."""
        corpus = self._corpus
        rows = np.arange(len(corpus.labels))
        targets, text_weights = targets_of_machines(corpus.labels, corpus.class_weights)
        return seconds_of_machines(self._inputs[rows], targets, text_weights)

    def _fit(self, rows: NDArray[np.int64], targets: NDArray[np.float64]) -> OneVsRest:
        """Fit to the texts in these rows; `targets` are their weights in each class, (texts, classes)."""
        machines = self._svm(rows, targets)
        if self._config.naive_bayes_em:
            words = self._naive_bayes(rows, targets)
            machines = OneVsRest(
                machines.weights + NAIVE_BAYES_WEIGHT * words.weights, machines.biases
            )
        is_absent = targets[:, -self._num_machines :].sum(axis=0) == 0
        machines.weights[:, is_absent], machines.biases[is_absent] = 0, NEVER
        return machines

    def _svm(self, rows: NDArray[np.int64], targets: NDArray[np.float64]) -> OneVsRest:
        """Fit an NB-SVM, and add its weights of latent semantics to those of features."""
        corpus, inputs = self._corpus, self._inputs[rows]
        with_classes = (corpus.features[rows] > 0).T @ targets
        of_machines = with_classes[:, -self._num_machines :]
        scales = np.ones((inputs.shape[1], self._num_machines), dtype=np.float32)
        scales[: len(with_classes)] = naive_bayes_ratios(of_machines, with_classes.sum(axis=1))
        is_class, text_weights = (
            targets[:, -self._num_machines :] > 0,
            targets.sum(axis=1, keepdims=True),
        )
        weights, biases = fit_machines(
            inputs, scales, is_class, np.broadcast_to(text_weights, is_class.shape)
        )
        of_features, of_coordinates = np.split(weights, [len(with_classes)])
        columns, directions = corpus.directions
        of_features[columns] += directions @ of_coordinates
        return self._scaled(of_features, biases)

    def _naive_bayes(self, rows: NDArray[np.int64], targets: NDArray[np.float64]) -> OneVsRest:
        """Fit naive Bayes: the logarithm of each word's share of each class, per unit of its feature."""
        counts = self._corpus.words[rows].T @ targets + SMOOTHING
        shares = np.log(counts / counts.sum(axis=0))
        shares -= shares.mean(axis=1, keepdims=True)
        weights = self._corpus.spread_words(shares[:, -self._num_machines :])
        return self._scaled(weights, np.zeros(self._num_machines))

    def _scaled(self, weights: NDArray[np.floating], biases: NDArray[np.floating]) -> OneVsRest:
        """Centre weights over several classes, and scale margins to a standard deviation of 1 on a sample of texts."""
        if len(biases) > 1:
            weights, biases = weights - weights.mean(axis=1, keepdims=True), biases - biases.mean()
        machines = OneVsRest(weights.astype(np.float32), biases.astype(np.float32))
        scale = np.float32(1 / max(float(machines.margins(self._sample).std()), 1e-9))
        return OneVsRest(machines.weights * scale, machines.biases * scale)


def shrunk_shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The shares of classes, shrunk towards equal ones as far as chance explains the differences of their counts.

    James and Stein, "Estimation with Quadratic Loss" (1961), with the chi-square of the counts against equal ones.
    """
    equal = counts.sum() / len(counts)
    chi_square = ((counts - equal) ** 2).sum() / equal
    chance = min(1.0, (len(counts) - 1) / max(chi_square, 1e-9))
    shares: NDArray[np.float64] = chance / len(counts) + (1 - chance) * counts / counts.sum()
    return shares


def aligned(margins: NDArray[np.floating], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift the margins of each class until answers have about these shares; a class without a share gets none.

    As distribution alignment in Berthelot et al., "ReMixMatch" (2020, https://arxiv.org/abs/1911.09785).
    """
    shifted, wanted = margins.astype(np.float64), np.log(np.maximum(shares, LEAST_SHARE))
    for _ in range(ALIGNMENTS):
        answered = np.bincount(shifted.argmax(axis=1), minlength=len(shares)) / len(shifted)
        shifted += ALIGNMENT_STEP * (wanted - np.log(np.maximum(answered, LEAST_SHARE)))
    return shifted


def surest(
    scores: NDArray[np.floating], share: float, most: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose this share of each guessed class, `most` at most, by their leads; returns rows and their classes."""
    guesses, best = scores.argmax(axis=1), np.sort(scores, axis=1)
    by_lead = np.argsort(best[:, -2] - best[:, -1], kind="stable")
    of_classes = (by_lead[guesses[by_lead] == c] for c in range(scores.shape[1]))
    chosen = np.concatenate(
        [texts[: max(1, int(share * len(texts)))][:most] for texts in of_classes]
    )
    return chosen, guesses[chosen]


def leads(logits: Logits) -> NDArray[np.float64]:
    """How much more probable the best class of each text is than the next, (texts,), by which `suggest` chooses."""
    best = np.sort(softmax(logits), axis=1)
    lead: NDArray[np.float64] = best[:, -1] - best[:, -2]
    return lead


def _is_right(way: Calibration, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 for each text with a correct answer out of fold, else 0."""
    right: NDArray[np.bool_] = way.logits.argmax(axis=1) == labels
    return right.astype(np.float64)


def _best(right: dict[str, NDArray[np.float64]]) -> str:
    """Choose the first kind, or the most accurate of those that beat it by more than chance explains."""
    first, best, most = next(iter(right)), next(iter(right)), 0.0
    for name, of_way in right.items():
        gains = of_way - right[first]
        if gains.mean() > max(most, STANDARD_ERRORS * gains.std() / np.sqrt(len(gains))):
            best, most = name, gains.mean()
    return best


def extrapolated(accuracy: float, with_fewer: float, *, times: float = 2.0) -> float:
    """Extrapolate accuracy to twice as many labels, from that with all and with `times` fewer; it never falls.

    Errors fall as a power of the number of labels (Hestness et al., "Deep Learning Scaling is Predictable,
    Empirically", 2017, https://arxiv.org/abs/1712.00409).
    """
    error, of_fewer = 1 - accuracy, max(1 - with_fewer, 1e-3)
    return 1 - error * math.pow(min(1.0, max(error, 1e-3) / of_fewer), math.log(2, times))


# The iterations of EM, and the weight of a text with a guessed class: the paper's lambda.
ITERATIONS, UNLABELLED_WEIGHT = (
    8,
    0.2,
)


def log_ratios(
    labelled: sp.csr_matrix, targets: NDArray[np.float64], unlabelled: sp.csr_matrix
) -> NDArray[np.float32]:
    """ln(a feature's share of the class / its share of the others), (features, machines), by naive Bayes with EM.

    The classifier of labelled texts guesses the classes of the others, a classifier learns from all, and so on (Nigam
    et al., "Text Classification from Labeled and Unlabeled Documents using EM", 2000,
    https://doi.org/10.1023/A:1007692713085). Texts are counts of features, (texts, features); `targets` are the weights
    of the labelled texts in each class, (texts, classes).
    """
    known, class_sizes = labelled.T @ targets, targets.sum(axis=0)
    smoothed = known + SMOOTHING
    for _ in range(ITERATIONS):
        # A class whose texts are all held out counts as one text.
        scores = unlabelled @ np.log(smoothed / smoothed.sum(axis=0)) + np.log(
            np.maximum(class_sizes, 1)
        )
        guesses = UNLABELLED_WEIGHT * softmax(scores)
        smoothed = known + unlabelled.T @ guesses + SMOOTHING
        class_sizes = targets.sum(axis=0) + guesses.sum(axis=0)
    others = smoothed.sum(axis=1, keepdims=True) - smoothed
    ratios = np.log(smoothed / smoothed.sum(axis=0)) - np.log(others / others.sum(axis=0))
    columns: NDArray[np.float32] = ratios[
        :, -SINGLE_LABEL.num_one_vs_rest(targets.shape[1]) :
    ].astype(np.float32)
    return columns
