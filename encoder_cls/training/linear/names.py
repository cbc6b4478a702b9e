"""Fit a linear classifier from class names alone.

The texts most similar to a name, by latent semantic analysis, are examples of its class; naive Bayes by expectation
maximization learns from these and all other texts: a dataless classification in two steps, as by Meng et al., "Text
Classification Using Label Names Only" (2020, https://arxiv.org/abs/2010.07245), without a pretrained model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.linear.features import FeatureCorpus, Reading, read_corpus
from encoder_cls.training.linear.techniques import naive_bayes

MOST_EXAMPLES = 40  # of each class, the texts that are nearest to its name,
MOST_PART = 0.4  # and no more than so many of an equal share of all texts
FEWEST_DIMENSIONS = 200  # of latent semantics, whatever else these are used for
SCALE = 6.0  # of the margins, times bits of a class number: no label shows how sure the classifier may be


def fit_linear_from_names(texts: TokenizedTexts, reading: Reading, *, dimensions: int) -> LinearClassifier:
    """Learn classes from texts that begin with the name of each class; `dimensions` of latent semantics at least."""
    classes = np.arange(len(reading.class_weights))
    names, dimensions = texts[: len(classes)], max(FEWEST_DIMENSIONS, dimensions)
    corpus = read_corpus(texts, classes, names, reading, dimensions=dimensions)
    examples, of_classes = _nearest(corpus)
    rows, labels = np.concatenate([classes, examples]), np.concatenate([classes, of_classes])
    learned = naive_bayes(corpus, rows, labels, scale=SCALE * np.log2(len(classes)))
    return corpus.vocabulary.classifier(*learned)


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
