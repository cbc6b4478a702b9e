"""Fit a linear classifier from class names alone.

The texts that are most like what a name says, by latent semantic analysis, are taken for examples of its class; naive
Bayes by expectation maximization learns from these and from all other texts. A dataless classification in two steps,
as Meng et al., "Text Classification Using Label Names Only" (2020, https://arxiv.org/abs/2010.07245), make it with a
pretrained language model, which there is none of here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.weights import compress
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear.features import FeatureCorpus, read_corpus
from encoder_cls.training.linear.techniques import log_ratios
from encoder_cls.training.plan import LinearInput

MOST_EXAMPLES = 40  # of each class, the texts that are nearest to its name,
MOST_PART = 0.4  # and no more than so many of an equal share of all texts
FEWEST_DIMENSIONS = 200  # of latent semantics, whatever else these are used for
SCALE = 6.0  # of the margins, times bits of a class number: no label tells how sure the classifier may be


def fit_linear_from_names(
    texts: TokenizedTexts, num_classes: int, *, class_weights: NDArray[np.float32], dimensions: int, read: LinearInput
) -> LinearClassifier:
    """Learn what texts are about from the names of the classes alone.

    Args:
        texts: what the name of each class says, in the order of the classes; then the texts without labels.
        num_classes: how many classes there are.
        class_weights: how much each counts, (classes,).
        dimensions: of latent semantics, at least.
        read: what of the texts is looked at.
    """
    classes = np.arange(num_classes)
    names, dimensions = texts.first(num_classes), max(FEWEST_DIMENSIONS, dimensions)
    corpus = read_corpus(
        texts,
        classes,
        names,
        class_weights=class_weights,
        dimensions=dimensions,
        max_tokens=read.max_tokens,
        use_char_ngrams=read.use_char_ngrams,
    )
    examples, of_classes = _nearest(corpus)
    rows, labels = np.concatenate([classes, examples]), np.concatenate([classes, of_classes])
    words = corpus.words
    ratios = log_ratios(words[rows], labels, class_weights[labels], words[corpus.unlabelled], num_classes=num_classes)
    weights = np.zeros((len(corpus.feature_ids), ratios.shape[1]), dtype=np.float32)
    weights[corpus.word_columns] = SCALE * np.log2(num_classes) * ratios / corpus.idf[corpus.word_columns, None]
    return LinearClassifier(
        max_tokens=read.max_tokens,
        frequent_token_ids=corpus.frequent_token_ids,
        feature_ids=corpus.feature_ids,
        idf=corpus.idf,
        weights=compress(weights, "float32"),
        biases=np.zeros(ratios.shape[1], dtype=np.float32),
    )


def _nearest(corpus: FeatureCorpus) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The texts that are much nearer to one name than to any other, and the classes of these names."""
    coordinates = corpus.coordinates
    coordinates = coordinates / np.maximum(np.linalg.norm(coordinates, axis=1, keepdims=True), 1e-9)
    cosines = coordinates[corpus.unlabelled] @ coordinates[: corpus.num_classes].T
    second, first = np.sort(cosines, axis=1)[:, -2:].T
    guesses, by_lead = cosines.argmax(axis=1), np.argsort(second - first, kind="stable")
    most = int(min(MOST_EXAMPLES, MOST_PART * len(guesses) / corpus.num_classes))
    chosen = np.concatenate([by_lead[guesses[by_lead] == c][:most] for c in range(corpus.num_classes)])
    return corpus.unlabelled[chosen], guesses[chosen]
