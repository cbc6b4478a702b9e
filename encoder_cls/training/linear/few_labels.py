"""Learn a linear classifier from few labels, or from class names alone, and from texts without labels.

Self-training: a classifier of the labelled texts guesses the classes of the others; it learns its surest guesses too,
more of them each round, in the end all. Out-of-fold answers decide whether its last round answers, or the mean of all
rounds, or a classifier of the labels alone. Whatever answers, it is one weight a feature and class.
"""

from __future__ import annotations

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
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear.calibration import NO_TEXTS, Calibration, calibrate, folds
from encoder_cls.training.linear.features import FeatureCorpus, Reading, read_corpus
from encoder_cls.training.linear.svm import TOLERANCE, OneVsRest, cross_validate, fit_linear

PARTS = (0.1, 0.3, 0.6, 1.0)  # of the texts without labels that each round learns from, the surest first
PSEUDO_LABEL_WEIGHT = 0.2  # of a text whose class is guessed
SMOOTHING = 0.1  # occurrences that each word has in each class besides those counted
ALIGNMENTS, ALIGNMENT_STEP, LEAST_SHARE = 50, 0.05, 1e-4
NEVER = -3.0  # the bias of a class without a text, in standard deviations
MOST_SCALED = 1000  # texts, to measure standard deviations of margins
MOST_OUT_OF_FOLD, MOST_WORK = 5000, 250_000  # texts without labels, and these times classes, that folds learn from

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


def surest(margins: NDArray[np.float64], part: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose this part of the texts answered with each class, those with the largest leads; returns texts, classes."""
    guesses, best = margins.argmax(axis=1), np.sort(margins, axis=1)
    by_lead = np.argsort(best[:, -2] - best[:, -1], kind="stable")
    of_classes = (by_lead[guesses[by_lead] == c] for c in range(margins.shape[1]))
    chosen = np.concatenate([texts[: max(1, int(part * len(texts)))] for texts in of_classes])
    return chosen, guesses[chosen]


class SelfTraining:
    """Classifiers of a corpus in rounds: an SVM of n-grams and latent semantics, and naive Bayes of words, summed.

    Words see what many texts have in common, n-grams and templates what few texts show; both count alike.
    """

    def __init__(self, corpus: FeatureCorpus, config: TrainConfig) -> None:
        self._corpus, self._config = corpus, config
        self._has_coordinates = config.lsa_dimensions > 0 and len(corpus.unlabelled) > 0
        self._inputs = corpus.features
        if self._has_coordinates:
            self._inputs = sp.hstack([corpus.features, sp.csr_matrix(corpus.coordinates)], format="csr")
        self._names = corpus.names if config.label_names_as_texts else NO_TEXTS
        self._scaled = np.random.default_rng(0).permutation(corpus.first_name)[:MOST_SCALED]

    def rounds(self, rows: NDArray[np.int64], unlabelled: NDArray[np.int64]) -> list[OneVsRest]:
        """Learn from labelled texts alone, then in rounds from more and more of the others as well."""
        corpus = self._corpus
        shares = shrunk_shares(np.bincount(corpus.labels[rows], minlength=len(corpus.class_weights)))
        known = np.concatenate([rows, self._names])
        labels = np.concatenate([corpus.labels[rows], self._names - corpus.first_name])
        machines = [self._learn(known, labels, np.ones(len(known)))]
        for part in PARTS if self._config.self_training and len(unlabelled) else ():
            margins = machines[-1].margins(corpus.features[unlabelled])
            margins = np.hstack([-margins, margins]) if margins.shape[1] == 1 else margins
            chosen, guesses = surest(aligned(margins, shares), part)
            weights = np.repeat([1.0, PSEUDO_LABEL_WEIGHT], [len(known), len(chosen)])
            machines.append(
                self._learn(np.concatenate([known, unlabelled[chosen]]), np.concatenate([labels, guesses]), weights)
            )
        return machines

    def _learn(self, rows: NDArray[np.int64], labels: NDArray[np.int64], weights: NDArray[np.float64]) -> OneVsRest:
        check_stop()
        weights = weights * self._corpus.class_weights[labels]
        summed = self._scaled_machines(*self._svm(rows, labels, weights))
        if self._config.naive_bayes_em:
            words = self._scaled_machines(*self._naive_bayes(rows, labels, weights))
            summed = OneVsRest(summed.weights + words.weights, summed.biases)
        absent = np.bincount(labels, minlength=len(self._corpus.class_weights))[-len(summed.biases) :] == 0
        return OneVsRest(np.where(absent, 0, summed.weights), np.where(absent, np.float32(NEVER), summed.biases))

    def _scaled_machines(self, weights: NDArray[np.floating], biases: NDArray[np.floating]) -> OneVsRest:
        """Centre the margins of several classes, and give those of a sample of texts a standard deviation of 1."""
        if len(biases) > 1:
            weights, biases = weights - weights.mean(axis=1, keepdims=True), biases - biases.mean()
        machines = OneVsRest(weights.astype(np.float32), biases.astype(np.float32))
        scale = 1 / max(float(machines.margins(self._corpus.features[self._scaled]).std()), 1e-9)
        return OneVsRest(machines.weights * np.float32(scale), machines.biases * np.float32(scale))

    def _svm(
        self, rows: NDArray[np.int64], labels: NDArray[np.int64], weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Weights (features, machines), those of latent semantics among them, and biases."""
        corpus, num_classes = self._corpus, len(self._corpus.class_weights)
        num_features, present = corpus.features.shape[1], np.unique(labels)
        all_weights, biases = np.zeros((self._inputs.shape[1], num_classes)), np.zeros(num_classes)
        if len(present) > 1:
            svm = fit_svm(self._inputs[rows], labels, sample_weight=weights, tol=TOLERANCE)
            learned, intercepts = svm.coef_.T, svm.intercept_
            if len(present) == 2:
                learned, intercepts = np.hstack([-learned, learned]), np.concatenate([-intercepts, intercepts])
            all_weights[:, present], biases[present] = learned, intercepts
        if num_classes == 2:
            all_weights, biases = all_weights[:, 1:], biases[1:]
        of_features = all_weights[:num_features]
        if self._has_coordinates:
            columns, directions = corpus.directions
            of_features[columns] += directions @ all_weights[num_features:]
        return of_features, biases

    def _naive_bayes(
        self, rows: NDArray[np.int64], labels: NDArray[np.int64], weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """The logarithm of each word's share of each class, per unit of its feature."""
        corpus, num_classes = self._corpus, len(self._corpus.class_weights)
        counts = corpus.words[rows].T @ _targets(labels, num_classes, weights) + SMOOTHING
        shares = np.log(counts / counts.sum(axis=0))
        shares -= shares.mean(axis=1, keepdims=True)
        columns = shares[:, num_classes - SINGLE_LABEL.num_one_vs_rest(num_classes) :]
        return corpus.spread_words(columns), np.zeros(columns.shape[1])


def _targets(labels: NDArray[np.int64], num_classes: int, weights: NDArray[np.floating]) -> NDArray[np.float64]:
    targets = np.zeros((len(labels), num_classes))
    targets[np.arange(len(labels)), labels] = weights
    return targets


def mean_machines(machines: Sequence[OneVsRest]) -> OneVsRest:
    """The machines whose margins are the mean of those of several."""
    weights, biases = np.add.reduce([it.weights for it in machines]), np.add.reduce([it.biases for it in machines])
    return OneVsRest(weights / np.float32(len(machines)), biases / np.float32(len(machines)))


STANDARD_ERRORS = 1.0  # by which more answers have to be right than those of the last round
FEWEST_EXTRAPOLATED = 40  # labelled texts, from half of which nothing is to be learned


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
    parts = folds(together, first=held_out)
    rows, all_rows = np.concatenate(parts), np.arange(len(labels))
    training = SelfTraining(corpus, config)
    alone = cross_validate(*corpus.labelled(), labels, reading.class_weights, parts)
    last, mean = (
        calibrate(margins, labels[rows], reading.class_weights) for margins in _out_of_fold(training, corpus, parts)
    )
    ways = {LAST: last, MEAN: mean, ALONE: alone}
    if not len(corpus.unlabelled):  # there is a single round, which knows no more than the names of classes
        ways = {ALONE: alone, LAST: last}
    kept = _best(ways, labels[rows])
    choice = ways[kept]

    def learned_from(some: NDArray[np.int64]) -> LinearClassifier:
        if kept == ALONE:
            return fit_linear(texts.take(some), labels[some], reading, choice=choice)[0]
        machines = training.rounds(some, corpus.unlabelled)
        machine = machines[-1] if kept == LAST else mean_machines(machines)
        return corpus.vocabulary.classifier(*machine.calibrated(choice))

    classifier = learned_from(all_rows)
    accuracy, before = (_accuracy(it, labels[rows]) for it in (choice, alone))
    twice = None
    if len(labels) >= FEWEST_EXTRAPOLATED:
        of_half = _out_of_fold(training, corpus, parts, fraction=0.5)[kept == MEAN]
        half = _accuracy(calibrate(of_half, labels[rows], reading.class_weights), labels[rows])
        twice = extrapolated(accuracy, half)
    return classifier, FewLabels(
        kept=kept,
        accuracy_before=before,
        accuracy=accuracy,
        accuracy_with_twice=twice,
        teacher=learned_from(np.setdiff1d(all_rows, held_out)) if with_teacher else None,
        rows=rows,
        logits=choice.logits,
    )


def _out_of_fold(
    training: SelfTraining, corpus: FeatureCorpus, parts: Sequence[NDArray[np.int64]], *, fraction: float = 1.0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The margins of each fold by a fraction of the other labels: of the last round, and the mean of all rounds."""
    most = max(1, min(MOST_OUT_OF_FOLD, MOST_WORK // len(corpus.class_weights)))
    unlabelled = np.sort(np.random.default_rng(0).permutation(corpus.unlabelled)[:most])
    last, mean = [], []
    for fold in parts:
        others = np.setdiff1d(np.arange(len(corpus.labels)), fold)
        if fraction < 1:
            others = np.sort(np.random.default_rng(0).permutation(others)[: max(1, round(fraction * len(others)))])
        machines = training.rounds(others, unlabelled)
        last.append(machines[-1].margins(corpus.features[fold]))
        mean.append(mean_machines(machines).margins(corpus.features[fold]))
    return np.concatenate(last), np.concatenate(mean)


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


def extrapolated(accuracy: float, with_half: float) -> float:
    """Extrapolate accuracies with all labels and with half of them to twice as many; they never fall.

    Errors fall as a power of the number of labels (Hestness et al., "Deep Learning Scaling is Predictable,
    Empirically", 2017, https://arxiv.org/abs/1712.00409).
    """
    error, of_half = 1 - accuracy, max(1 - with_half, 1e-3)
    return 1 - error * min(1.0, max(error, 1e-3) / of_half)


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
    examples, of_classes = _nearest(corpus)
    rows, labels = np.concatenate([classes, examples]), np.concatenate([classes, of_classes])
    ratios = log_ratios(
        corpus.words[rows],
        labels,
        reading.class_weights[labels],
        corpus.words[corpus.unlabelled],
        num_classes=len(classes),
    )
    weights = corpus.spread_words(SCALE * np.log2(len(classes)) * ratios)
    return corpus.vocabulary.classifier(weights, np.zeros(weights.shape[1], dtype=np.float32))


def _nearest(corpus: FeatureCorpus) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The texts that are much nearer to one name than to any other, and the classes of these names."""
    coordinates = corpus.coordinates
    coordinates = coordinates / np.maximum(np.linalg.norm(coordinates, axis=1, keepdims=True), 1e-9)
    cosines = coordinates[corpus.unlabelled] @ coordinates[: len(corpus.class_weights)].T
    second, first = np.sort(cosines, axis=1)[:, -2:].T
    guesses, by_lead = cosines.argmax(axis=1), np.argsort(second - first, kind="stable")
    most = int(min(MOST_EXAMPLES, MOST_PART * len(guesses) / len(corpus.class_weights)))
    chosen = np.concatenate([by_lead[guesses[by_lead] == c][:most] for c in range(len(corpus.class_weights))])
    return corpus.unlabelled[chosen], guesses[chosen]


def log_ratios(
    labelled: sp.csr_matrix,
    labels: NDArray[np.int64],
    text_weights: NDArray[np.float32],
    unlabelled: sp.csr_matrix,
    *,
    num_classes: int,
) -> NDArray[np.float32]:
    """ln(a feature's share of the class / its share of the others), (features, classes), by naive Bayes with EM.

    Nigam et al., "Text Classification from Labeled and Unlabeled Documents using EM" (2000),
    https://doi.org/10.1023/A:1007692713085: the classifier of the labelled texts guesses the classes of the unlabelled
    ones; a classifier is learned from all, in which an unlabelled text counts less; and so on. Arguments are counts of
    features, a row a text, and of labelled texts their classes and weights. Of two classes there is the second's
    column.
    """
    targets = _targets(labels, num_classes, text_weights)
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
    columns: NDArray[np.float32] = ratios[:, num_classes - SINGLE_LABEL.num_one_vs_rest(num_classes) :]
    return columns.astype(np.float32)
