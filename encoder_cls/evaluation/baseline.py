"""The baseline of a report: a linear SVM on TF-IDF values of words and pairs of words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset, Split, joined_splits
from encoder_cls.evaluation.comparisons import score_predictions, scores_without_intervals
from encoder_cls.linear_training.svm import fit_svm
from encoder_cls.metrics.precision_recall import average_precisions, best_f1_threshold, mean_or_zero
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import padded
from encoder_cls.text.tokens import drawn_rows
from encoder_cls.text.word_pattern import UNSPACED_RANGES

# The most characters that the baseline learns from, and the most characters times classes. With
# these limits, training takes at most a minute and 1.5 GB for any number of texts and classes.
MAX_CHARACTERS = 40_000_000
MAX_CHARACTERS_BY_CLASSES = 500_000_000


def baseline_scores(
    dataset: Dataset,
    split: Split,
    *,
    with_validation: bool = False,
    seconds: float | None = None,
    max_texts: int | None = None,
) -> dict[str, Any] | None:
    """Train the baseline as a model was, and score it on a split; None if it cannot be.

    With `with_validation`, that includes the validation texts. Of too many texts, the baseline
    learns from a random sample, and of too many features, from the most frequent. A text with an
    unseen label is a mistake. Multi-label, the baseline is an SVM for each label, with one
    threshold, that of the best micro-F1 on validation texts. With a limit in `seconds`, it first
    learns from a small sample, to estimate how much it can learn from.
    """
    learned = dataset.train
    if with_validation:
        learned = joined_splits(learned, dataset.known_validation)
    train = _drawn(learned, max_texts)
    num_classes = _num_classes(learned)
    try:
        max_characters = _max_characters(train, split, num_classes, seconds)
        if max_characters == 0:
            return None

        features = _Features.of(train, num_classes, max_characters)
        if dataset.is_multi_label:
            scores = _score_labels(features, dataset.known_validation, split)
        else:
            svm = fit_svm(features.matrix, features.sample.labels)
            predictions = features.apply(svm.predict, split)
            scores = score_predictions(predictions, split.labels, RowGroups(split.split_groups))
    except (ValueError, MemoryError):
        # scikit-learn raises a ValueError if no text has a word, or if only one class is left in
        # the sample.
        return None

    return {
        **scores,
        "texts": len(features.sample),
        "of_texts": len(learned),
        "features": len(features.kept),
        "of_features": len(features.vectorizer.vocabulary_),
    }


def _drawn(train: Split, max_texts: int | None) -> Split:
    if max_texts is None or max_texts >= len(train):
        return train
    rows = drawn_rows(np.ones(len(train), dtype=np.int64), max_texts)
    return train.subset(np.sort(rows))


def _num_classes(train: Split) -> int:
    if train.is_multi_label:
        return int(train.labels.shape[1])
    return int(train.labels.max()) + 1


def _max_characters(train: Split, split: Split, num_classes: int, seconds: float | None) -> int:
    limit = min(MAX_CHARACTERS, MAX_CHARACTERS_BY_CLASSES // num_classes)
    if seconds is None:
        return limit
    return min(limit, _affordable_characters(train, split, num_classes, seconds))


# The number of characters in the first sample, which is learned from to measure the time.
TIMED_CHARACTERS = 500_000
# The shortest time limit, in seconds, in which it is worthwhile to learn from the first sample.
MIN_SECONDS = 0.5
# The time to score a character, relative to the time to learn from a character.
SCORING_SHARE = 0.4
# The fraction of the remaining time to plan for. It is below 1, because a fit takes longer per
# character if there is more text.
SAFETY = 0.7


def _affordable_characters(train: Split, split: Split, num_classes: int, seconds: float) -> int:
    """Estimate how many characters can be learned from with time left to score."""
    if seconds < MIN_SECONDS:
        return 0

    # Learn from a first sample. In a multi-label task, time the SVM of one label, and assume that
    # those of the other labels take as long. Some texts must have the label and some lack it, so
    # take the one whose share of the texts is nearest to a half.
    start = time.monotonic()
    features = _Features.of(train, num_classes, TIMED_CHARACTERS)
    labels = features.sample.labels
    num_svms = 1
    if train.is_multi_label:
        shares = (labels > 0).mean(axis=0)
        labels = labels[:, np.abs(shares - 0.5).argmin()] > 0
        num_svms = num_classes
    fit_svm(features.matrix, labels)

    # If the sample has all texts, there is no need to limit the number of characters.
    if len(features.sample) == len(train):
        return MAX_CHARACTERS

    taken = time.monotonic() - start
    seconds_per_character = taken / _lengths(features.sample).sum() * num_svms

    # Scoring the split takes as long as learning from this number of characters.
    scoring_characters = SCORING_SHARE * _lengths(split).sum()
    seconds_left = seconds - taken
    affordable = int(SAFETY * seconds_left / seconds_per_character - scoring_characters)
    if affordable < TIMED_CHARACTERS:
        return 0
    return affordable


def _score_labels(features: _Features, validation: Split, split: Split) -> dict[str, Any]:
    num_classes = features.num_classes
    num_labels = split.labels.shape[1]
    has_label = features.sample.labels > 0
    weights = np.zeros((features.matrix.shape[1], num_classes), dtype=np.float32)

    # Fit an SVM for each label that some texts have and some lack. A label that all texts have is
    # always predicted, and a label that no text has is never predicted.
    has_all = has_label.all(axis=0)
    biases = np.where(has_all, 1, -1).astype(np.float32)
    for label in np.flatnonzero(has_label.any(axis=0) & ~has_all):
        svm = fit_svm(features.matrix, has_label[:, label])
        weights[:, label] = svm.coef_[0]
        biases[label] = svm.intercept_[0]

    def margins(matrix: Any) -> NDArray[Any]:
        return np.asarray(matrix @ weights + biases)

    validation_scores = features.apply(margins, validation)
    validation_labels = validation.labels[:, :num_classes]
    threshold = best_f1_threshold(validation_scores.ravel(), validation_labels.ravel())

    scores = features.apply(margins, split)
    is_given = padded(scores >= threshold, num_labels)

    # Labels that do not occur in the training texts come last in each ranking.
    num_unseen = num_labels - num_classes
    scores = np.pad(scores, ((0, 0), (0, num_unseen)), constant_values=scores.min())
    precisions = average_precisions(scores.astype(np.float64), split.labels)

    scores_by_key = scores_without_intervals(is_given, split.labels)
    scores_by_key["mean_average_precision"] = mean_or_zero(precisions)
    return scores_by_key


# What counts as a word: a word, a run of punctuation, or a single character of a script that is
# written without spaces.
WORD_PATTERN = rf"[{UNSPACED_RANGES}]|[^\W{UNSPACED_RANGES}]+|[^\w\s]+"
# The most weights of all SVMs together; an SVM has a weight for each feature, for each class.
MAX_WEIGHTS = 60_000_000
# The most scores that are computed at once; each text has a score for each class.
MAX_SCORES = 4_000_000


class _Features(NamedTuple):
    """TF-IDF features, fitted to all training texts or to a random sample.

    `kept` are the most frequent ones, ascending, the columns of `matrix`.
    """

    sample: Split
    vectorizer: Any
    kept: NDArray[np.int64]
    matrix: Any
    num_classes: int

    @classmethod
    def of(cls, train: Split, num_classes: int, max_characters: int) -> _Features:
        from sklearn.feature_extraction.text import TfidfVectorizer

        sample = train
        lengths = _lengths(train)
        if lengths.sum() > max_characters:
            rows = drawn_rows(lengths, max_characters)
            sample = train.subset(np.sort(rows))

        vectorizer = TfidfVectorizer(
            ngram_range=(1, 2), token_pattern=WORD_PATTERN, sublinear_tf=True
        )
        matrix = vectorizer.fit_transform(_cut(sample.texts))

        # Keep the most frequent features, as many as `MAX_WEIGHTS` allows.
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
        texts_at_once = max(1, MAX_SCORES // self.num_classes)
        scores = []
        for start in range(0, len(split), texts_at_once):
            texts = _cut(split.texts[start : start + texts_at_once])
            features = self.vectorizer.transform(texts)
            scores.append(score(features[:, self.kept]))
        return np.concatenate(scores)


# The most characters that are read of one text, because all words of a text are in memory at once.
MAX_TEXT_LENGTH = 100_000


def _cut(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield text[:MAX_TEXT_LENGTH]


def _lengths(split: Split) -> NDArray[np.int64]:
    return np.fromiter(map(len, _cut(split.texts)), dtype=np.int64, count=len(split))
