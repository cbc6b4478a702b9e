"""Learn a linear classifier from few labels, or from class names alone, and from texts without labels.

Self-training: a classifier of the labelled texts guesses the classes of the others; it learns its surest guesses too,
more of them each round, in the end all. Out-of-fold answers decide whether its last round answers, or the mean of all
rounds, or a classifier of the labels alone. Whatever answers, it is one weight a feature and class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.config import TrainConfig
from encoder_cls.evaluation.baseline import fit_svm
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import SINGLE_LABEL, Logits, softmax
from encoder_cls.system.stop import check_stop
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.training.linear.calibration import NO_TEXTS, Calibration, calibrate, folds
from encoder_cls.training.linear.features import FeatureCorpus, Reading, read_corpus, scaled_columns
from encoder_cls.training.linear.svm import TOLERANCE, OneVsRest, cross_validate, fit_linear, naive_bayes_ratios

PARTS = (0.1, 0.3, 0.6, 1.0)  # of the texts without labels that each round learns from, the surest first
PSEUDO_LABEL_WEIGHT = 0.1  # of a text whose class is guessed
NAIVE_BAYES_WEIGHT = np.float32(0.5)  # of its margins, where the SVM's count 1
SMOOTHING = 0.1  # occurrences that each word has in each class besides those counted
ALIGNMENTS, ALIGNMENT_STEP, LEAST_SHARE = 50, 0.05, 1e-4
NEVER = -3.0  # the bias of a class without a text, in standard deviations
MOST_SCALED = 1000  # texts, to measure standard deviations of margins
MOST_OUT_OF_FOLD, MOST_WORK = 5000, 250_000  # texts without labels, and these times classes, that folds learn from
STANDARD_ERRORS = 1.0  # by which more answers have to be right than those of the last round
FEWEST_EXTRAPOLATED = 40  # labelled texts, from half of which nothing is to be learned

ALONE, LAST, MEAN = "labels alone", "self-training", "self-training, mean of its rounds"


def shrunk_shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The shares of classes, drawn to equal ones as far as chance explains the differences of their counts.

    James and Stein, "Estimation with Quadratic Loss" (1961), with the chi-square of the counts against equal ones.
    """
    equal = counts.sum() / len(counts)
    chi_square = ((counts - equal) ** 2).sum() / equal
    chance = min(1.0, (len(counts) - 1) / max(chi_square, 1e-9))
    shares: NDArray[np.float64] = chance / len(counts) + (1 - chance) * counts / counts.sum()
    return shares


def aligned(margins: NDArray[np.floating], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift each class's margins until the answers have about these shares; a class without a share has no answer.

    As distribution alignment in Berthelot et al., "ReMixMatch" (2020, https://arxiv.org/abs/1911.09785).
    """
    shifted, wanted = margins.astype(np.float64), np.log(np.maximum(shares, LEAST_SHARE))
    for _ in range(ALIGNMENTS):
        answered = np.bincount(shifted.argmax(axis=1), minlength=len(shares)) / len(shifted)
        shifted += ALIGNMENT_STEP * (wanted - np.log(np.maximum(answered, LEAST_SHARE)))
    return shifted


def surest(
    scores: NDArray[np.floating], part: float, most: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose this part of the texts of each class, `most` at most, those with the largest leads: texts, classes."""
    guesses, best = scores.argmax(axis=1), np.sort(scores, axis=1)
    by_lead = np.argsort(best[:, -2] - best[:, -1], kind="stable")
    of_classes = (by_lead[guesses[by_lead] == c] for c in range(scores.shape[1]))
    chosen = np.concatenate([texts[: max(1, int(part * len(texts)))][:most] for texts in of_classes])
    return chosen, guesses[chosen]


class SelfTraining:
    """Classifiers of a corpus in rounds: an NB-SVM of n-grams and latent semantics, and naive Bayes of words, summed.

    Words see what many texts have in common, n-grams and templates what few texts show.
    """

    def __init__(self, corpus: FeatureCorpus, config: TrainConfig) -> None:
        self._corpus, self._config = corpus, config
        self._inputs = corpus.features
        if config.lsa_dimensions > 0 and len(corpus.unlabelled):
            self._inputs = sp.hstack([corpus.features, sp.csr_matrix(corpus.coordinates)], format="csr")
        self._names = corpus.names if config.label_names_as_texts else NO_TEXTS
        self._sample = corpus.features[np.random.default_rng(0).permutation(corpus.first_name)[:MOST_SCALED]]

    def learn(self, rows: NDArray[np.int64], unlabelled: NDArray[np.int64]) -> dict[str, OneVsRest]:
        """Learn from labelled texts, then in rounds from others as well: the `LAST` round, and the `MEAN` of all."""
        corpus = self._corpus
        shares = shrunk_shares(np.bincount(corpus.labels[rows], minlength=len(corpus.class_weights)))
        known = np.concatenate([rows, self._names])
        labels = np.concatenate([corpus.labels[rows], self._names - corpus.first_name])
        rounds = [self._fit(known, labels, np.ones(len(known)))]
        for part in PARTS if self._config.self_training and len(unlabelled) else ():
            margins = rounds[-1].margins(corpus.features[unlabelled])
            margins = np.hstack([-margins, margins]) if margins.shape[1] == 1 else margins
            chosen, guesses = surest(aligned(margins, shares), part)
            weights = np.repeat([1.0, PSEUDO_LABEL_WEIGHT], [len(known), len(chosen)])
            texts, classes = np.concatenate([known, unlabelled[chosen]]), np.concatenate([labels, guesses])
            rounds.append(self._fit(texts, classes, weights))
        return {LAST: rounds[-1], MEAN: OneVsRest(*(np.mean(it, axis=0) for it in zip(*rounds, strict=True)))}

    def cross_validate(self, parts: Sequence[NDArray[np.int64]]) -> dict[str, Calibration]:
        """Calibrate each way to learn on the margins of each fold, learned from the others; the default comes first."""
        corpus, by_fold = self._corpus, []
        most = max(1, min(MOST_OUT_OF_FOLD, MOST_WORK // len(corpus.class_weights)))
        unlabelled = np.sort(np.random.default_rng(0).permutation(corpus.unlabelled)[:most])
        for fold in parts:
            learned = self.learn(np.setdiff1d(np.arange(len(corpus.labels)), fold), unlabelled)
            by_fold.append({way: machines.margins(corpus.features[fold]) for way, machines in learned.items()})
        labels, class_weights = corpus.labels[np.concatenate(parts)], corpus.class_weights
        ways = {way: calibrate(np.concatenate([it[way] for it in by_fold]), labels, class_weights) for way in learned}
        alone = cross_validate(*corpus.labelled(), corpus.labels, class_weights, parts)
        if not len(unlabelled):  # there is a single round, which knows no more than the names of classes
            return {ALONE: alone, LAST: ways[LAST]}
        return {**ways, ALONE: alone}

    def _fit(self, rows: NDArray[np.int64], labels: NDArray[np.int64], weights: NDArray[np.float64]) -> OneVsRest:
        class_weights = self._corpus.class_weights
        targets = np.eye(len(class_weights))[labels] * (weights * class_weights[labels])[:, None]
        machines = self._svm(rows, targets)
        if self._config.naive_bayes_em:
            words = self._naive_bayes(rows, targets)
            machines = OneVsRest(machines.weights + NAIVE_BAYES_WEIGHT * words.weights, machines.biases)
        absent = targets.sum(axis=0)[-len(machines.biases) :] == 0
        return OneVsRest(np.where(absent, 0, machines.weights), np.where(absent, np.float32(NEVER), machines.biases))

    def _scaled(self, weights: NDArray[np.floating], biases: NDArray[np.floating]) -> OneVsRest:
        """Centre the margins of several classes, and give those of a sample of texts a standard deviation of 1."""
        if len(biases) > 1:
            weights, biases = weights - weights.mean(axis=1, keepdims=True), biases - biases.mean()
        machines = OneVsRest(weights.astype(np.float32), biases.astype(np.float32))
        scale = np.float32(1 / max(float(machines.margins(self._sample).std()), 1e-9))
        return OneVsRest(machines.weights * scale, machines.biases * scale)

    def _svm(self, rows: NDArray[np.int64], targets: NDArray[np.float64]) -> OneVsRest:
        """Fit an NB-SVM, and add its weights of latent semantics to those of features."""
        corpus, inputs = self._corpus, self._inputs[rows]
        with_classes = (corpus.features[rows] > 0).T @ targets
        everywhere, text_weights = with_classes.sum(axis=1), targets.sum(axis=1)
        first = targets.shape[1] - SINGLE_LABEL.num_one_vs_rest(targets.shape[1])
        weights, biases = np.zeros((inputs.shape[1], targets.shape[1])), np.zeros(targets.shape[1])
        for number in range(first, targets.shape[1]):
            check_stop()
            is_class, inside = targets[:, number] > 0, with_classes[:, number]
            if is_class.all() or not is_class.any():  # where texts are held out
                continue
            scales = np.ones(inputs.shape[1], dtype=np.float32)
            scales[: len(inside)] = naive_bayes_ratios(inside, everywhere - inside)
            svm = fit_svm(scaled_columns(inputs, scales), is_class, sample_weight=text_weights, tol=TOLERANCE)
            weights[:, number], biases[number] = svm.coef_[0] * scales, svm.intercept_[0]
        of_features, of_coordinates = np.split(weights[:, first:], [len(everywhere)])
        if len(of_coordinates):
            columns, directions = corpus.directions
            of_features[columns] += directions @ of_coordinates
        return self._scaled(of_features, biases[first:])

    def _naive_bayes(self, rows: NDArray[np.int64], targets: NDArray[np.float64]) -> OneVsRest:
        """The logarithm of each word's share of each class, per unit of its feature."""
        counts = self._corpus.words[rows].T @ targets + SMOOTHING
        shares = np.log(counts / counts.sum(axis=0))
        shares -= shares.mean(axis=1, keepdims=True)
        columns = shares[:, -SINGLE_LABEL.num_one_vs_rest(targets.shape[1]) :]
        return self._scaled(self._corpus.spread_words(columns), np.zeros(columns.shape[1]))


class FewLabels(NamedTuple):
    """What out-of-fold answers showed where labels are few."""

    kept: str  # `ALONE`, `LAST` or `MEAN`
    accuracy_before: float  # out of fold, of the labels alone
    accuracy: float
    accuracy_with_twice: float | None  # as many labels; none where there are too few to extrapolate from
    teacher: LinearClassifier | None  # of all but the texts that were named to be held out, if it is wanted
    rows: NDArray[np.int64]  # the labelled texts, first those that were named to be held out,
    logits: Logits  # and their answers, each by a classifier that has not learned it


def fit_linear_from_few_labels(
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    names: TokenizedTexts,
    reading: Reading,
    *,
    config: TrainConfig,
    together: NDArray[np.int64],
    held_out: NDArray[np.int64] = NO_TEXTS,
    with_teacher: bool = False,
) -> tuple[LinearClassifier, FewLabels]:
    """Fit a linear classifier by self-training, unless the labels alone are seen to be better.

    Texts are those with `labels`, then those without, of which a sample is read; `names` are the texts of the classes'
    names. `together` is as in `folds`; the labelled texts `held_out` are one fold of the cross-validation.
    """
    corpus = read_corpus(texts, labels, names, reading, dimensions=config.lsa_dimensions)
    training = SelfTraining(corpus, config)
    parts, all_rows = folds(together, first=held_out), np.arange(len(labels))
    rows = np.concatenate(parts)
    ways = training.cross_validate(parts)
    kept = _best(ways, labels[rows])
    choice = ways[kept]

    def learned_from(some: NDArray[np.int64]) -> LinearClassifier:
        if kept == ALONE:
            return fit_linear(texts.take(some), labels[some], reading, choice=choice)[0]
        machines = training.learn(some, corpus.unlabelled)[kept]
        return corpus.vocabulary.classifier(*machines.calibrated(choice))

    accuracy, before = (_accuracy(ways[name], labels[rows]) for name in (kept, ALONE))
    twice = None
    if len(labels) >= FEWEST_EXTRAPOLATED and len(parts) > 2:
        halves = [np.concatenate(parts[::2]), np.concatenate(parts[1::2])]
        of_half = _accuracy(training.cross_validate(halves)[kept], labels[np.concatenate(halves)])
        twice = extrapolated(accuracy, of_half, times=2 - 2 / len(parts))
    return learned_from(all_rows), FewLabels(
        kept=kept,
        accuracy_before=before,
        accuracy=accuracy,
        accuracy_with_twice=twice,
        teacher=learned_from(np.setdiff1d(all_rows, held_out)) if with_teacher else None,
        rows=rows,
        logits=choice.logits,
    )


def _best(ways: dict[str, Calibration], labels: NDArray[np.int64]) -> str:
    """The first way, unless another one's answers are more often right by more than chance would make them."""
    first, best, most = next(iter(ways)), next(iter(ways)), 0.0
    right = {name: (way.logits.argmax(axis=1) == labels).astype(float) for name, way in ways.items()}
    for name in ways:
        gains = right[name] - right[first]
        if gains.mean() > max(most, STANDARD_ERRORS * gains.std() / np.sqrt(len(gains))):
            best, most = name, gains.mean()
    return best


def _accuracy(way: Calibration, labels: NDArray[np.int64]) -> float:
    return float((way.logits.argmax(axis=1) == labels).mean())


def extrapolated(accuracy: float, with_fewer: float, *, times: float = 2.0) -> float:
    """Extrapolate accuracies with labels, and with so many `times` fewer, to twice as many labels; they never fall.

    Errors fall as a power of the number of labels (Hestness et al., "Deep Learning Scaling is Predictable,
    Empirically", 2017, https://arxiv.org/abs/1712.00409).
    """
    error, of_fewer = 1 - accuracy, max(1 - with_fewer, 1e-3)
    return 1 - error * math.pow(min(1.0, max(error, 1e-3) / of_fewer), math.log(2, times))


class LinearAnswers(NamedTuple):
    """What an encoder is given of a linear classifier; none of a part that there is not."""

    validation_logits: Logits | None  # none: the encoder is judged elsewhere
    pseudo_labels: NDArray[np.float32] | None = None  # (texts, classes), of the texts of the stage without a label


MOST_EXAMPLES = 40  # of each class, the texts that are nearest to its name,
MOST_PART = 0.4  # and no more than so many of an equal share of all texts
FEWEST_DIMENSIONS = 200  # of latent semantics, whatever else these are used for
SCALE = 6.0  # of the margins, times bits of a class number: no label shows how sure the classifier may be
ITERATIONS, UNLABELLED_WEIGHT = 8, 0.2  # of EM, and of a text whose class is guessed, as the paper's lambda


def fit_linear_from_names(texts: TokenizedTexts, reading: Reading, *, dimensions: int) -> LinearClassifier:
    """Learn classes from texts that begin with the name of each class; `dimensions` of latent semantics at least.

    The texts most similar to a name, by latent semantic analysis, are examples of its class; naive Bayes by expectation
    maximization learns from these and all other texts: a dataless classification in two steps, as by Meng et al., "Text
    Classification Using Label Names Only" (2020, https://arxiv.org/abs/2010.07245), without a pretrained model.
    """
    classes = np.arange(len(reading.class_weights))
    names, dimensions = texts[: len(classes)], max(FEWEST_DIMENSIONS, dimensions)
    corpus = read_corpus(texts, classes, names, reading, dimensions=dimensions)
    coordinates = corpus.coordinates / np.maximum(np.linalg.norm(corpus.coordinates, axis=1, keepdims=True), 1e-9)
    cosines = coordinates[corpus.unlabelled] @ coordinates[classes].T
    most = int(min(MOST_EXAMPLES, MOST_PART * len(cosines) / len(classes)))
    examples, of_examples = surest(cosines, 1.0, most)
    rows, labels = np.concatenate([classes, corpus.unlabelled[examples]]), np.concatenate([classes, of_examples])
    words, others = corpus.words[rows], corpus.words[corpus.unlabelled]
    ratios = log_ratios(words, labels, reading.class_weights[labels], others, num_classes=len(classes))
    weights = corpus.spread_words(SCALE * np.log2(len(classes)) * ratios)
    return corpus.vocabulary.classifier(weights, np.zeros(weights.shape[1], dtype=np.float32))


def log_ratios(
    labelled: sp.csr_matrix,
    labels: NDArray[np.int64],
    text_weights: NDArray[np.float32],
    unlabelled: sp.csr_matrix,
    *,
    num_classes: int,
) -> NDArray[np.float32]:
    """ln(a feature's share of the class / its share of the others), (features, machines), by naive Bayes with EM.

    The classifier of labelled texts guesses the classes of the others, a classifier learns from all, and so on (Nigam
    et al., "Text Classification from Labeled and Unlabeled Documents using EM", 2000,
    https://doi.org/10.1023/A:1007692713085). Texts are counts of features, (texts, features).
    """
    targets = np.eye(num_classes)[labels] * text_weights[:, None]
    known = labelled.T @ targets
    counts, class_sizes = known, targets.sum(axis=0)
    for _ in range(ITERATIONS):
        smoothed = counts + SMOOTHING
        # A class of which all texts are held out is as rare as one text would be.
        scores = unlabelled @ np.log(smoothed / smoothed.sum(axis=0)) + np.log(np.maximum(class_sizes, 1))
        guesses = UNLABELLED_WEIGHT * softmax(scores)
        counts, class_sizes = known + unlabelled.T @ guesses, targets.sum(axis=0) + guesses.sum(axis=0)
    smoothed = counts + SMOOTHING
    others = smoothed.sum(axis=1, keepdims=True) - smoothed
    ratios = np.log(smoothed / smoothed.sum(axis=0)) - np.log(others / others.sum(axis=0))
    columns: NDArray[np.float32] = ratios[:, -SINGLE_LABEL.num_one_vs_rest(num_classes) :].astype(np.float32)
    return columns
