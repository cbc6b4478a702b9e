"""Techniques that help with few labels in; those that cross-validation shows to help, and what they learn, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from encoder_cls.inference.logits import Logits, combine_logits, softmax
from encoder_cls.inference.tasks import SINGLE_LABEL
from encoder_cls.training.calibration import fit_platt
from encoder_cls.training.feature_corpus import FeatureCorpus
from encoder_cls.training.naive_bayes_em import log_ratios
from encoder_cls.training.nbsvm import cross_validate
from encoder_cls.training.one_vs_rest import OneVsRest, learn_one_vs_rest

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
