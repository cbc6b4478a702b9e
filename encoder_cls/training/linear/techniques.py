"""Techniques for few labels, chosen by cross-validation.

Nigam et al., "Text Classification from Labeled and Unlabeled Documents using EM" (2000),
https://doi.org/10.1023/A:1007692713085: the classifier of the labelled texts says how probable each class is for each
unlabelled one; a classifier is learned from all, in which an unlabelled text counts less; and so on.

What is known to help with few labels is tried one after the other, and kept where the labelled texts show by
cross-validation that it helps: latent semantics, names of classes as texts, self-training, naive Bayes by EM. Whatever
is kept, the result is one weight a feature and class, so a model looks as it would without. Where nothing is kept it is
the classifier that `training/linear/svm` fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.config import TrainConfig
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import SINGLE_LABEL, Logits, combine_logits, softmax
from encoder_cls.inference.weights import compress
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear.calibration import fit_platt
from encoder_cls.training.linear.features import FeatureCorpus, read_corpus
from encoder_cls.training.linear.folds import NO_TEXTS, folds
from encoder_cls.training.linear.svm import OneVsRest, cross_validate, fit_linear, learn_one_vs_rest
from encoder_cls.training.plan import LinearInput

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
    """Of each feature ln(its share of the class's features / its share of the others'), (features, classes).

    Of two classes there is the second's column alone.

    Args:
        labelled: how often each feature occurs, a row a text.
        labels: their classes.
        text_weights: how much each counts.
        unlabelled: the same features of the texts without labels.
        num_classes: how many there are.
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
    found: NDArray[np.float32] = ratios[:, num_classes - SINGLE_LABEL.num_one_vs_rest(num_classes) :].astype(np.float32)
    return found


PSEUDO_LABELLED_PART = 0.2  # of the unlabelled texts, the most confident, that self-training adds,
MOST_PSEUDO_LABELLED = 1500  # so many at most,
PSEUDO_LABEL_WEIGHT = 0.2  # each with this weight
STANDARD_ERRORS = 1.0  # that gains in likelihood and in accuracy have to be above zero


class Techniques(NamedTuple):
    """Which of them there are: those that are to be tried, or those that have been found to help."""

    naive_bayes_em: bool = False
    label_names: bool = False
    latent_semantics: bool = False
    self_training: bool = False

    @property
    def listed(self) -> str:
        """Their names, for a message."""
        return ", ".join(name.replace("_", " ") for name, is_used in self._asdict().items() if is_used) or "none"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is known of a choice of techniques.

    Attributes:
        techniques: the choice.
        scales: by which the margins of each classifier are multiplied, and
        shift: what is added to their sum, so that it is their logit.
        logits: of the texts held out.
        losses: the negative log-likelihood of the label of each of them, times the weight of its class.
        right: 1 where the answer is right, else 0, (texts held out,).
    """

    techniques: Techniques
    scales: tuple[float, ...]
    shift: float
    logits: Logits
    losses: NDArray[np.float64]
    right: NDArray[np.float64]

    @property
    def accuracy(self) -> float:
        """On the texts held out."""
        return float(self.right.mean())


def _is_better(found: Found, best: Found) -> bool:
    """Whether labels are likelier, and more answers right, both by more than chance would make them.

    Likelihood alone is not enough: what EM finds from all labels may be far from what it found on the folds.
    """
    return _is_certain(best.losses - found.losses) and _is_certain(found.right - best.right)


def _is_certain(gains: NDArray[np.float64]) -> bool:
    """Whether the mean of gains, (texts,), is above zero by more than some standard errors."""
    return bool(gains.mean() > STANDARD_ERRORS * gains.std() / np.sqrt(len(gains)))


class TechniqueSearch:
    """Tries techniques by cross-validation over the labelled texts, each beside those that are kept already.

    Args:
        corpus: the features of all texts.
        parts: the labelled texts that are held out together.

    Attributes:
        best: what is known of the techniques kept.
    """

    def __init__(self, corpus: FeatureCorpus, parts: Sequence[NDArray[np.int64]]) -> None:
        self.corpus = corpus
        self._folds = parts
        self._held_out = corpus.labels[np.concatenate(self._folds)]
        counts = corpus.counts[: len(corpus.labels)]
        (columns,) = np.nonzero(counts.getnnz(axis=0))
        columns = columns if len(columns) else np.zeros(1, dtype=np.int64)
        ids = corpus.feature_ids[columns]
        plain = cross_validate(counts[:, columns], ids, corpus.labels, corpus.class_weights, parts)
        self._penalty = plain.penalty
        self._margins: dict[Techniques | bool, NDArray[np.float32]] = {}
        self.best = self._found(Techniques(), (float(plain.scale),), float(plain.shift), plain.logits)

    def try_each(self, names: Sequence[str]) -> None:
        """Try techniques in this order; `best` becomes what is kept."""
        for name in names:
            techniques = self.best.techniques._replace(**{name: True})
            margins = self._margins_held_out(techniques)
            scales, shift = fit_platt(margins, self._held_out, self.corpus.num_classes)
            total = np.add.reduce([scale * part for scale, part in zip(scales, margins, strict=True)]) + shift
            found = self._found(techniques, scales, shift, SINGLE_LABEL.margins_to_logits(total.astype(np.float32)))
            if _is_better(found, self.best):
                self.best = found

    def learn_from(self, rows: NDArray[np.int64]) -> OneVsRest:
        """The weights and biases of logits that these labelled texts give with the techniques kept."""
        techniques = self.best.techniques
        learned = [self._learn_svms(rows, techniques)]
        if techniques.naive_bayes_em:
            learned.append(self._learn_naive_bayes(rows, with_names=techniques.label_names))
        pairs = list(zip(self.best.scales, learned, strict=True))
        weights = np.add.reduce([scale * it.weights for scale, it in pairs])
        biases = np.add.reduce([scale * it.biases for scale, it in pairs]) + self.best.shift
        return OneVsRest(weights.astype(np.float32), biases.astype(np.float32))

    def _found(self, techniques: Techniques, scales: tuple[float, ...], shift: float, logits: Logits) -> Found:
        texts = np.arange(len(logits))
        likelihoods = softmax(logits)[texts, self._held_out]
        return Found(
            techniques=techniques,
            scales=scales,
            shift=shift,
            logits=logits,
            losses=-np.log(np.maximum(likelihoods, 1e-12)) * self.corpus.class_weights[self._held_out],
            right=(logits.argmax(axis=1) == self._held_out).astype(np.float64),
        )

    def accuracy_with(self, fraction: float) -> float:
        """The accuracy on texts held out of what a fraction of the others' labels give with the techniques kept."""
        if fraction == 1:
            return self.best.accuracy
        techniques = self.best.techniques
        margins = [self._by_fold(lambda rows: self._learn_svms(rows, techniques), fraction)]
        if techniques.naive_bayes_em:
            with_names = techniques.label_names
            margins.append(self._by_fold(lambda rows: self._learn_naive_bayes(rows, with_names=with_names), fraction))
        total = combine_logits(margins, self.best.scales)
        logits = SINGLE_LABEL.margins_to_logits(total.astype(np.float32))
        return float((logits.argmax(axis=1) == self._held_out).mean())

    def _margins_held_out(self, techniques: Techniques) -> list[NDArray[np.float32]]:
        """Of the SVMs and, where it is used, of naive Bayes; each computed once."""
        of_svms = techniques._replace(naive_bayes_em=False)
        if of_svms not in self._margins:
            self._margins[of_svms] = self._by_fold(lambda rows: self._learn_svms(rows, of_svms))
        if not techniques.naive_bayes_em:
            return [self._margins[of_svms]]
        with_names = techniques.label_names
        if with_names not in self._margins:
            self._margins[with_names] = self._by_fold(lambda rows: self._learn_naive_bayes(rows, with_names=with_names))
        return [self._margins[of_svms], self._margins[with_names]]

    def _by_fold(self, learn: Callable[[NDArray[np.int64]], OneVsRest], fraction: float = 1.0) -> NDArray[np.float32]:
        """The margins of the texts of each fold, where a fraction of the other labelled texts is learned from."""
        margins = []
        for fold in self._folds:
            others = np.setdiff1d(np.arange(len(self.corpus.labels)), fold)
            if fraction < 1:
                others = np.sort(np.random.default_rng(0).permutation(others)[: max(1, round(fraction * len(others)))])
            learned = learn(others)
            margins.append(self.corpus.features[fold] @ learned.weights + learned.biases)
        return np.concatenate(margins)

    def _with_names(self, rows: NDArray[np.int64], with_names: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to learn from, and their classes."""
        corpus = self.corpus
        names = corpus.names if with_names else rows[:0]
        return np.concatenate([rows, names]), np.concatenate([corpus.labels[rows], corpus.class_of_name(names)])

    def _learn_naive_bayes(self, rows: NDArray[np.int64], *, with_names: bool) -> OneVsRest:
        corpus = self.corpus
        known, labels = self._with_names(rows, with_names)
        words = corpus.words
        ratios = log_ratios(
            words[known],
            labels,
            corpus.class_weights[labels],
            words[corpus.unlabelled],
            num_classes=corpus.num_classes,
        )
        weights = np.zeros((len(corpus.feature_ids), ratios.shape[1]), dtype=np.float32)
        weights[corpus.word_columns] = ratios / corpus.idf[corpus.word_columns, None]
        return OneVsRest(weights, np.zeros(ratios.shape[1], dtype=np.float32))

    def _learn_svms(self, rows: NDArray[np.int64], techniques: Techniques) -> OneVsRest:
        known, labels = self._with_names(rows, techniques.label_names)
        weights = np.ones(len(known), dtype=np.float32)
        learned = self._fit_svms(known, labels, weights, techniques)
        if not techniques.self_training:
            return learned
        chosen, guesses = self._most_confident(learned, self.corpus.labels[rows])
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
        logits = SINGLE_LABEL.margins_to_logits(self.corpus.features[unlabelled] @ learned.weights + learned.biases)
        guesses, confidence = logits.argmax(axis=1), logits.max(axis=1)
        most = min(MOST_PSEUDO_LABELLED, PSEUDO_LABELLED_PART * len(unlabelled))
        counts = np.round(most * np.bincount(labels, minlength=self.corpus.num_classes) / len(labels)).astype(int)
        by_confidence = np.argsort(-confidence, kind="stable")
        chosen = np.concatenate([by_confidence[guesses[by_confidence] == c][:n] for c, n in enumerate(counts)])
        return unlabelled[chosen], guesses[chosen]

    def _fit_svms(
        self, rows: NDArray[np.int64], labels: NDArray[np.int64], weights: NDArray[np.float32], techniques: Techniques
    ) -> OneVsRest:
        """One-vs-rest SVMs of some rows, a text counting by its weight; weights of coordinates become features'."""
        corpus = self.corpus
        features = corpus.features[rows]
        active, columns = np.unique(features.indices, return_inverse=True)
        features = sp.csr_matrix((features.data, columns, features.indptr), shape=(len(rows), max(1, len(active))))
        learned = learn_one_vs_rest(
            features,
            sp.diags(weights) @ (features > 0).astype(np.float32),
            labels,
            weights * corpus.class_weights[labels],
            num_classes=corpus.num_classes,
            penalty=self._penalty,
            coordinates=corpus.coordinates[rows] if techniques.latent_semantics else None,
        )
        folded = np.zeros((len(corpus.feature_ids), learned.weights.shape[1]), dtype=np.float32)
        folded[active] = learned.weights[: len(active)]
        if techniques.latent_semantics:
            corpus.directions.add_to(folded, learned.weights[features.shape[1] :])
        return OneVsRest(folded, learned.biases)


FEWEST_EXTRAPOLATED = 40  # labelled texts, from a quarter of which nothing is to be learned
FRACTIONS = (1.0, 0.5, 0.25)  # of the labels, from whose accuracies that with twice the labels is extrapolated


class FewLabelsResult(NamedTuple):
    """A classifier, and what cross-validation found out.

    Attributes:
        classifier: of all labelled texts.
        kept: the techniques that help.
        accuracy_before: of texts held out, without these.
        accuracy: the same with them.
        accuracy_with_twice: the one to be expected with twice as many labels; none: there are too few to tell.
        teacher: a classifier of all but the texts that were named to be held out, and
        logits_held_out: its logits of these.
    """

    classifier: LinearClassifier
    kept: Techniques
    accuracy_before: float
    accuracy: float
    accuracy_with_twice: float | None
    teacher: LinearClassifier
    logits_held_out: Logits


def fit_linear_from_few_labels(
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    names: TokenizedTexts,
    *,
    class_weights: NDArray[np.float32],
    read: LinearInput,
    config: TrainConfig,
    together: NDArray[np.int64],
    held_out: NDArray[np.int64] = NO_TEXTS,
) -> FewLabelsResult:
    """Train a linear classifier with whatever the labelled texts show to help.

    Args:
        texts: those with labels, then those without.
        labels: the classes of the first of them.
        names: the name of each class, as a text.
        class_weights: how much each class counts, (classes,).
        read: what of the texts is looked at.
        config: what is to be tried.
        together: of the texts with labels, as in `folds`.
        held_out: labelled texts that are one part of the cross-validation.
    """
    choices: dict[str, Any] = {
        "class_weights": class_weights,
        "max_tokens": read.max_tokens,
        "use_char_ngrams": read.use_char_ngrams,
    }
    corpus = read_corpus(texts, labels, names, dimensions=config.lsa_dimensions, **choices)
    parts = folds(together, first=held_out)
    search = TechniqueSearch(corpus, parts)
    before = search.best
    search.try_each(_worth_trying(config, corpus))
    found = search.best

    def learned_from(rows: NDArray[np.int64]) -> LinearClassifier:
        learned = search.learn_from(rows)
        return LinearClassifier(
            max_tokens=read.max_tokens,
            frequent_token_ids=corpus.frequent_token_ids,
            feature_ids=corpus.feature_ids,
            idf=corpus.idf,
            weights=compress(learned.weights, "float32"),
            biases=learned.biases,
        )

    rows = np.arange(len(labels))
    if found is before:
        classifier = fit_linear(texts.first(len(labels)), labels, parts=parts, **choices)
    else:
        classifier = learned_from(rows)
    return FewLabelsResult(
        classifier=classifier,
        kept=found.techniques,
        accuracy_before=before.accuracy,
        accuracy=found.accuracy,
        accuracy_with_twice=_accuracy_with_twice(search) if len(labels) >= FEWEST_EXTRAPOLATED else None,
        teacher=learned_from(np.setdiff1d(rows, held_out)) if len(held_out) else classifier,
        logits_held_out=found.logits[: len(held_out)],
    )


def _worth_trying(config: TrainConfig, corpus: FeatureCorpus) -> list[str]:
    """The techniques to try, in this order: those that the config wants and that have texts to learn from."""
    has_texts = len(corpus.unlabelled) > 0
    wanted = {
        "naive_bayes_em": config.naive_bayes_em and has_texts,
        "label_names": config.label_names_as_texts and len(corpus.names) > 0,
        "latent_semantics": config.lsa_dimensions > 0 and has_texts,
        "self_training": config.self_training and has_texts,
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]


def _accuracy_with_twice(search: TechniqueSearch) -> float:
    """The accuracy to be expected with twice as many labels, from a learning curve.

    Errors fall as a power of the number of labels (Hestness et al., "Deep Learning Scaling is Predictable,
    Empirically", 2017, https://arxiv.org/abs/1712.00409), by least squares in logarithms; they never rise.
    """
    errors = 1 - np.array([search.accuracy_with(fraction) for fraction in FRACTIONS])
    slope, _ = np.polyfit(np.log(FRACTIONS), np.log(np.maximum(errors, 1e-3)), 1)
    return float(1 - errors[0] * 2 ** min(slope, 0.0))


class FittedLinear(NamedTuple):
    """A linear classifier.

    Attributes:
        classifier: the classifier.
        validation_logits: of texts that it has not learned from, or else those of cross-validation.
        few_labels: where labels are few, what was kept of all that was tried.
    """

    classifier: LinearClassifier
    validation_logits: Logits
    few_labels: FewLabelsResult | None


class LinearAnswers(NamedTuple):
    """What an encoder is given of a linear classifier.

    Attributes:
        validation_logits: as in `FittedLinear`; none: the encoder is judged elsewhere.
        pseudo_labels: how probable each class is for each text of the stage that has no label, (texts, classes); none:
            there is no such text.
    """

    validation_logits: Logits | None
    pseudo_labels: NDArray[np.float32] | None = None
