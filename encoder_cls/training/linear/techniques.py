"""Techniques for few labels, each kept where the labelled texts show by cross-validation that it helps.

Whatever is kept, the result is one weight a feature and class. Where nothing is, it is the classifier of `fit_linear`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.config import TrainConfig
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import SINGLE_LABEL, Logits, combine_logits, softmax
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear.calibration import fit_platt
from encoder_cls.training.linear.features import FeatureCorpus, Reading, read_corpus
from encoder_cls.training.linear.folds import NO_TEXTS, folds
from encoder_cls.training.linear.machines import OneVsRest, fit_one_vs_rest
from encoder_cls.training.linear.svm import ENOUGH_HELD_OUT, cross_validate, fit_linear

ITERATIONS = 8
UNLABELLED_WEIGHT = 0.2  # of a text whose class is guessed, as the paper's lambda
SMOOTHING = 0.1  # occurrences that each feature has in each class besides those counted


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
    targets = np.zeros((len(labels), num_classes))
    targets[np.arange(len(labels)), labels] = text_weights
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


def naive_bayes(
    corpus: FeatureCorpus, rows: NDArray[np.int64], labels: NDArray[np.int64], *, scale: float = 1.0
) -> OneVsRest:
    """Learn the words of some rows, whose classes are known, and of the unlabelled texts."""
    words, by_class = corpus.words, corpus.class_weights[labels]
    ratios = log_ratios(words[rows], labels, by_class, words[corpus.unlabelled], num_classes=len(corpus.class_weights))
    ids, idf = corpus.vocabulary.feature_ids, corpus.vocabulary.idf
    weights = np.zeros((len(ids), ratios.shape[1]), dtype=np.float32)
    weights[corpus.word_columns] = scale * ratios / idf[corpus.word_columns, None]
    return OneVsRest(weights, np.zeros(ratios.shape[1], dtype=np.float32))


PSEUDO_LABELLED_PART = 0.2  # of the unlabelled texts, the most confident, that self-training adds,
MOST_PSEUDO_LABELLED = 1500  # so many at most,
PSEUDO_LABEL_WEIGHT = 0.2  # each with this weight
STANDARD_ERRORS = 1.0  # that gains in likelihood and in accuracy have to be above zero


class Techniques(NamedTuple):
    """Techniques that are tried, or were kept."""

    naive_bayes_em: bool = False
    label_names: bool = False
    latent_semantics: bool = False
    self_training: bool = False

    @property
    def listed(self) -> str:
        """Their names, for a message."""
        return ", ".join(name.replace("_", " ") for name, is_used in self._asdict().items() if is_used) or "none"

    @property
    def machines(self) -> list[Techniques]:
        """The techniques of each classifier whose margins are summed: the SVMs, and naive Bayes where it is used."""
        svms = self._replace(naive_bayes_em=False)
        return [svms, Techniques(True, self.label_names)] if self.naive_bayes_em else [svms]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Techniques, and how they did on the texts held out."""

    techniques: Techniques
    scales: tuple[float, ...]  # of the margins of each classifier
    shift: float  # of the sum of margins, which is then a logit
    logits: Logits
    losses: NDArray[np.float64]  # negative log-likelihood of each label, times the weight of its class
    right: NDArray[np.float64]  # 1 or 0


def _is_better(trial: Trial, best: Trial) -> bool:
    """Whether labels are likelier, and more answers right, both by more than chance would make them.

    Likelihood alone is not enough: what EM learns from all labels may be far from what it learned on the folds.
    """
    gains = (best.losses - trial.losses, trial.right - best.right)
    return all(it.mean() > STANDARD_ERRORS * it.std() / np.sqrt(len(it)) for it in gains)


class TechniqueSearch:
    """Tries techniques by cross-validation over the labelled texts, each beside those that are kept, in `best`."""

    def __init__(self, corpus: FeatureCorpus, parts: Sequence[NDArray[np.int64]]) -> None:
        self.corpus = corpus
        self._folds = parts
        self._held_out = corpus.labels[np.concatenate(self._folds)]
        counts = corpus.counts[: len(corpus.labels)]
        (columns,) = np.nonzero(counts.getnnz(axis=0))
        columns = columns if len(columns) else np.zeros(1, dtype=np.int64)
        vocabulary = corpus.vocabulary._replace(feature_ids=corpus.vocabulary.feature_ids[columns])
        plain = cross_validate(vocabulary, counts[:, columns], corpus.labels, corpus.class_weights, parts)
        self._penalty = plain.penalty
        self._margins: dict[Techniques, NDArray[np.float32]] = {}
        self.best = self._judged(Techniques(), (float(plain.scale),), float(plain.shift), plain.logits)

    def try_each(self, names: Sequence[str]) -> None:
        """Try techniques in this order; `best` becomes what is kept."""
        for name in names:
            techniques = self.best.techniques._replace(**{name: True})
            for part in techniques.machines:
                if part not in self._margins:
                    self._margins[part] = self._margins_by_fold(part)
            margins = [self._margins[part] for part in techniques.machines]
            scales, shift = fit_platt(margins, self._held_out, len(self.corpus.class_weights))
            total = np.add.reduce([scale * part for scale, part in zip(scales, margins, strict=True)]) + shift
            trial = self._judged(techniques, scales, shift, SINGLE_LABEL.margins_to_logits(total.astype(np.float32)))
            if _is_better(trial, self.best):
                self.best = trial

    def learn_from(self, rows: NDArray[np.int64]) -> OneVsRest:
        """Fit machines of these labelled texts with the techniques kept; their margins are calibrated."""
        learned = [self._learn(rows, part) for part in self.best.techniques.machines]
        pairs = list(zip(self.best.scales, learned, strict=True))
        weights = np.add.reduce([scale * it.weights for scale, it in pairs])
        biases = np.add.reduce([scale * it.biases for scale, it in pairs]) + self.best.shift
        return OneVsRest(weights.astype(np.float32), biases.astype(np.float32))

    def accuracy_with(self, fraction: float) -> float:
        """The accuracy on texts held out from a fraction of the others' labels with the techniques kept."""
        if fraction == 1:
            return float(self.best.right.mean())
        margins = [self._margins_by_fold(part, fraction) for part in self.best.techniques.machines]
        total = combine_logits(margins, self.best.scales)
        logits = SINGLE_LABEL.margins_to_logits(total.astype(np.float32))
        return float((logits.argmax(axis=1) == self._held_out).mean())

    def _judged(self, techniques: Techniques, scales: tuple[float, ...], shift: float, logits: Logits) -> Trial:
        likelihoods = softmax(logits)[np.arange(len(logits)), self._held_out]
        return Trial(
            techniques=techniques,
            scales=scales,
            shift=shift,
            logits=logits,
            losses=-np.log(np.maximum(likelihoods, 1e-12)) * self.corpus.class_weights[self._held_out],
            right=(logits.argmax(axis=1) == self._held_out).astype(np.float64),
        )

    def _margins_by_fold(self, techniques: Techniques, fraction: float = 1.0) -> NDArray[np.float32]:
        """The margins of the texts of each fold, learned from a fraction of the other labelled texts."""
        margins = []
        for fold in self._folds:
            others = np.setdiff1d(np.arange(len(self.corpus.labels)), fold)
            if fraction < 1:
                others = np.sort(np.random.default_rng(0).permutation(others)[: max(1, round(fraction * len(others)))])
            margins.append(self._learn(others, techniques).margins(self.corpus.features[fold]))
        return np.concatenate(margins)

    def _learn(self, rows: NDArray[np.int64], techniques: Techniques) -> OneVsRest:
        """Fit naive Bayes, where it is among the techniques, else SVMs."""
        corpus = self.corpus
        names = corpus.names if techniques.label_names else rows[:0]
        known = np.concatenate([rows, names])
        labels = np.concatenate([corpus.labels[rows], names - corpus.first_name])
        if techniques.naive_bayes_em:
            return naive_bayes(corpus, known, labels)
        weights = np.ones(len(known), dtype=np.float32)
        learned = self._fit_svms(known, labels, weights, techniques)
        if not techniques.self_training:
            return learned
        chosen, guesses = self._most_confident(learned, corpus.labels[rows])
        return self._fit_svms(
            np.concatenate([known, chosen]),
            np.concatenate([labels, guesses]),
            np.concatenate([weights, np.full(len(chosen), PSEUDO_LABEL_WEIGHT, dtype=np.float32)]),
            techniques,
        )

    def _most_confident(
        self, learned: OneVsRest, labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Unlabelled texts with their most probable classes, as many of each as is the class's share of the labels."""
        unlabelled = self.corpus.unlabelled
        logits = SINGLE_LABEL.margins_to_logits(learned.margins(self.corpus.features[unlabelled]))
        guesses, confidence = logits.argmax(axis=1), logits.max(axis=1)
        most = min(MOST_PSEUDO_LABELLED, PSEUDO_LABELLED_PART * len(unlabelled))
        counts = np.round(most * np.bincount(labels, minlength=len(self.corpus.class_weights)) / len(labels)).astype(
            int
        )
        by_confidence = np.argsort(-confidence, kind="stable")
        chosen = np.concatenate([by_confidence[guesses[by_confidence] == c][:n] for c, n in enumerate(counts)])
        return unlabelled[chosen], guesses[chosen]

    def _fit_svms(
        self, rows: NDArray[np.int64], labels: NDArray[np.int64], weights: NDArray[np.float32], techniques: Techniques
    ) -> OneVsRest:
        """Fit one-vs-rest SVMs of some rows by their weights; weights of coordinates become features'."""
        corpus = self.corpus
        features = corpus.features[rows]
        active, columns = np.unique(features.indices, return_inverse=True)
        features = sp.csr_matrix((features.data, columns, features.indptr), shape=(len(rows), max(1, len(active))))
        learned = fit_one_vs_rest(
            features,
            labels,
            corpus.class_weights,
            penalty=self._penalty,
            weights=weights,
            coordinates=corpus.coordinates[rows] if techniques.latent_semantics else None,
        )
        folded = np.zeros((corpus.counts.shape[1], learned.weights.shape[1]), dtype=np.float32)
        folded[active] = learned.weights[: len(active)]
        if techniques.latent_semantics:
            columns, directions = corpus.directions
            folded[columns] += directions @ learned.weights[features.shape[1] :]
        return OneVsRest(folded, learned.biases)


FEWEST_EXTRAPOLATED = 40  # labelled texts, from a quarter of which nothing is to be learned
FRACTIONS = (1.0, 0.5, 0.25)  # of the labels, from whose accuracies that with twice the labels is extrapolated


class FewLabels(NamedTuple):
    """What cross-validation showed where labels are few."""

    kept: Techniques
    accuracy_before: float  # of texts held out, without these techniques
    accuracy: float
    accuracy_with_twice: float | None  # as many labels; none where there are too few to extrapolate from
    teacher: LinearClassifier  # of all but the texts that were named to be held out
    logits_held_out: Logits  # the teacher's, of these


def fit_linear_from_few_labels(
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    names: TokenizedTexts,
    reading: Reading,
    *,
    config: TrainConfig,
    together: NDArray[np.int64],
    held_out: NDArray[np.int64] = NO_TEXTS,
) -> tuple[LinearClassifier, FewLabels]:
    """Fit a linear classifier with the techniques that the labelled texts show to help.

    Texts are those with `labels`, then those without, of which a sample is read; `names` are the texts of the classes'
    names. `together` is as in `folds`; the labelled texts `held_out` are one fold of the cross-validation.
    """
    corpus = read_corpus(texts, labels, names, reading, dimensions=config.lsa_dimensions)
    parts = folds(together, first=held_out, enough=ENOUGH_HELD_OUT[SINGLE_LABEL])
    search = TechniqueSearch(corpus, parts)
    before = search.best
    search.try_each(_worth_trying(config, corpus))
    rows, best = np.arange(len(labels)), search.best
    if best is before:
        classifier, _ = fit_linear(texts[: len(labels)], labels, reading, parts=parts)
    else:
        classifier = corpus.vocabulary.classifier(*search.learn_from(rows))
    teacher = classifier
    if len(held_out):
        teacher = corpus.vocabulary.classifier(*search.learn_from(np.setdiff1d(rows, held_out)))
    return classifier, FewLabels(
        kept=best.techniques,
        accuracy_before=float(before.right.mean()),
        accuracy=float(best.right.mean()),
        accuracy_with_twice=_accuracy_with_twice(search) if len(labels) >= FEWEST_EXTRAPOLATED else None,
        teacher=teacher,
        logits_held_out=best.logits[: len(held_out)],
    )


def _worth_trying(config: TrainConfig, corpus: FeatureCorpus) -> list[str]:
    """The techniques that the config wants and that have texts to learn from, in the order of trying."""
    has_texts = len(corpus.unlabelled) > 0
    wanted = {
        "naive_bayes_em": config.naive_bayes_em and has_texts,
        "label_names": config.label_names_as_texts and len(corpus.names) > 0,
        "latent_semantics": config.lsa_dimensions > 0 and has_texts,
        "self_training": config.self_training and has_texts,
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]


def _accuracy_with_twice(search: TechniqueSearch) -> float:
    """Extrapolate a learning curve to twice as many labels.

    Errors fall as a power of the number of labels (Hestness et al., "Deep Learning Scaling is Predictable,
    Empirically", 2017, https://arxiv.org/abs/1712.00409), by least squares in logarithms; they never rise.
    """
    errors = 1 - np.array([search.accuracy_with(fraction) for fraction in FRACTIONS])
    slope, _ = np.polyfit(np.log(FRACTIONS), np.log(np.maximum(errors, 1e-3)), 1)
    return float(1 - errors[0] * 2 ** min(slope, 0.0))


class LinearAnswers(NamedTuple):
    """What an encoder is given of a linear classifier; none of a part that there is not."""

    validation_logits: Logits | None  # none: the encoder is judged elsewhere
    pseudo_labels: NDArray[np.float32] | None = None  # (texts, classes), of the texts of the stage without a label
