"""The TF-IDF baseline that each report compares the classifier with.

It is a linear SVM on words and pairs of words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.evaluation.comparisons import score_predictions, scores_without_intervals
from encoder_cls.linear.svm import fit_svm
from encoder_cls.metrics.classification import (
    average_precisions,
    best_f1_threshold,
    mean_or_zero,
    padded,
)
from encoder_cls.text.tokenizer import UNSPACED_RANGES
from encoder_cls.text.tokens import drawn_rows

# Limits that keep training within a minute and 1.5 GB for any number of texts and classes. Time
# grows with the number of characters read, and with characters times classes.
MAX_CHARACTERS = 40_000_000
MAX_CHARACTERS_BY_CLASSES = 500_000_000


def baseline_scores(
    dataset: Dataset, split: Split, *, seconds: float | None = None
) -> dict[str, Any] | None:
    """Train the baseline on a data set and score it on a split.

    It is trained on all texts and features, or on a random sample of the texts, `texts` of
    `of_texts`, and its most frequent features, `features` of `of_features`. With a limit of
    `seconds`, a first, small sample decides the size of the sample. Texts whose label never occurs
    in training count as mistakes. Multi-label, it has one SVM per label and one threshold, which
    maximizes micro-F1 on the validation texts.

    Returns None if no text has a word, or where time or memory does not suffice.
    """
    train = dataset.train
    num_classes = _num_classes(train)
    try:
        most_characters = _most_characters(train, split, num_classes, seconds)
        if most_characters == 0:
            return None

        features = _Features.of(train, num_classes, most_characters)
        if dataset.is_multi_label:
            scores = _score_labels(features, dataset.known_validation, split)
        else:
            svm = fit_svm(features.matrix, features.sample.labels)
            predictions = features.apply(svm.predict, split)
            scores = score_predictions(predictions, split.labels)
    except (ValueError, MemoryError):
        # scikit-learn raises a ValueError where no text has a word, or one class is left.
        return None

    return {
        **scores,
        "texts": len(features.sample),
        "of_texts": len(train),
        "features": len(features.kept),
        "of_features": len(features.vectorizer.vocabulary_),
    }


def _num_classes(train: Split) -> int:
    if train.is_multi_label:
        return int(train.labels.shape[1])
    return int(train.labels.max()) + 1


def _most_characters(train: Split, split: Split, num_classes: int, seconds: float | None) -> int:
    """The number of characters to learn from; 0 if the time is too short."""
    most = min(MAX_CHARACTERS, MAX_CHARACTERS_BY_CLASSES // num_classes)
    if seconds is None:
        return most
    return min(most, _affordable_characters(train, split, num_classes, seconds))


# Characters of the first sample, whose time decides how many the baseline learns from.
TIMED_CHARACTERS = 500_000
# A shorter time is not enough for the first sample.
MIN_SECONDS = 0.5
# The time to score a character, relative to learning from one.
SCORING_SHARE = 0.4
# The part of the time to plan for: with more text, a fit takes longer per character.
SAFETY = 0.7


def _affordable_characters(train: Split, split: Split, num_classes: int, seconds: float) -> int:
    """The number of characters to learn from in the time that scoring the split leaves.

    It is 0 if that is too short.
    """
    if seconds < MIN_SECONDS:
        return 0

    # Learn from a first sample. Multi-label, the SVM of one label represents all.
    start = time.monotonic()
    features = _Features.of(train, num_classes, TIMED_CHARACTERS)
    labels = features.sample.labels
    num_svms = 1
    if train.is_multi_label:
        labels = labels[:, 0] > 0
        num_svms = num_classes
    fit_svm(features.matrix, labels)

    # If the sample has all texts, learning from all of them again takes as long.
    if len(features.sample) == len(train):
        return MAX_CHARACTERS

    taken = time.monotonic() - start
    seconds_per_character = taken / _lengths(features.sample).sum() * num_svms

    # Scoring the split costs as much as learning from so many characters.
    scoring_characters = SCORING_SHARE * _lengths(split).sum()
    left = seconds - taken
    most = int(SAFETY * left / seconds_per_character - scoring_characters)
    if most < TIMED_CHARACTERS:
        return 0
    return most


def _score_labels(features: _Features, validation: Split, split: Split) -> dict[str, Any]:
    """Fit an SVM for each label, choose a threshold on validation texts, and score the split."""
    num_classes = features.num_classes
    num_labels = split.labels.shape[1]
    has_label = features.sample.labels > 0
    weights = np.zeros((features.matrix.shape[1], num_classes), dtype=np.float32)

    # A label that all texts have is always given, one that no text has never; others get an SVM.
    has_all = has_label.all(axis=0)
    biases = np.where(has_all, 1, -1).astype(np.float32)
    for label in np.flatnonzero(has_label.any(axis=0) & ~has_all):
        svm = fit_svm(features.matrix, has_label[:, label])
        weights[:, label] = svm.coef_[0]
        biases[label] = svm.intercept_[0]

    def margins(matrix: Any) -> NDArray[Any]:
        return np.asarray(matrix @ weights + biases)

    # One threshold for all pairs of a text and a label.
    validation_scores = features.apply(margins, validation)
    validation_labels = validation.labels[:, :num_classes]
    threshold = best_f1_threshold(validation_scores.ravel(), validation_labels.ravel())

    scores = features.apply(margins, split)
    is_given = padded(scores >= threshold, num_labels)

    # Labels that never occur in training come last in each ranking.
    num_unseen = num_labels - num_classes
    scores = np.pad(scores, ((0, 0), (0, num_unseen)), constant_values=scores.min())
    precisions = average_precisions(scores.astype(np.float64), split.labels)

    scores_by_key = scores_without_intervals(is_given, split.labels)
    scores_by_key["mean_average_precision"] = mean_or_zero(precisions)
    return scores_by_key


# Words, runs of punctuation, and single characters of scripts that are written without spaces.
WORD_PATTERN = rf"[{UNSPACED_RANGES}]|[^\W{UNSPACED_RANGES}]+|[^\w\s]+"
# Weights of all SVMs, one for each feature and class.
MAX_WEIGHTS = 60_000_000
# Texts times classes that are scored at once.
MAX_SCORES = 4_000_000


class _Features(NamedTuple):
    """TF-IDF of training texts, or of a random sample of them.

    Attributes:
        sample: the training texts, or the sample.
        vectorizer: the `TfidfVectorizer`.
        kept: the numbers of the most frequent features, ascending, (features,).
        matrix: the features of the sample, (texts, features).
        num_classes: the number of classes of the training data.
    """

    sample: Split
    vectorizer: Any
    kept: NDArray[np.int64]
    matrix: Any
    num_classes: int

    @classmethod
    def of(cls, train: Split, num_classes: int, most_characters: int) -> _Features:
        """Fit features to all texts, or to a sample with `most_characters` in all."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        sample = train
        lengths = _lengths(train)
        if lengths.sum() > most_characters:
            rows = drawn_rows(lengths, most_characters)
            sample = train.subset(np.sort(rows))

        vectorizer = TfidfVectorizer(
            ngram_range=(1, 2), token_pattern=WORD_PATTERN, sublinear_tf=True
        )
        matrix = vectorizer.fit_transform(_cut(sample.texts))

        # Keep as many of the most frequent features as there may be weights.
        num_kept = max(1, MAX_WEIGHTS // num_classes)
        by_frequency = np.argsort(-matrix.getnnz(axis=0), kind="stable")
        kept = np.sort(by_frequency[:num_kept])
        return cls(
            sample=sample,
            vectorizer=vectorizer,
            kept=kept,
            matrix=matrix[:, kept],
            num_classes=num_classes,
        )

    def apply(self, score: Callable[[Any], NDArray[Any]], split: Split) -> NDArray[Any]:
        """Score the features of texts, (texts, features), in chunks that fit in memory."""
        texts_at_once = max(1, MAX_SCORES // self.num_classes)
        scores = []
        for start in range(0, len(split), texts_at_once):
            texts = _cut(split.texts[start : start + texts_at_once])
            features = self.vectorizer.transform(texts)
            scores.append(score(features[:, self.kept]))
        return np.concatenate(scores)


# Characters that are read of a text, whose words are in memory at once.
LONGEST_TEXT = 100_000


def _cut(texts: Sequence[str]) -> Iterator[str]:
    """The part of each text that the baseline reads."""
    for text in texts:
        yield text[:LONGEST_TEXT]


def _lengths(split: Split) -> NDArray[np.int64]:
    """The number of characters of each text that the baseline reads, (texts,)."""
    return np.fromiter(map(len, _cut(split.texts)), dtype=np.int64, count=len(split))
