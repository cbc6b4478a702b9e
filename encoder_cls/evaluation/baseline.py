"""The TF-IDF baseline: a linear SVM on words and pairs of words, which each report compares the classifier with."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.evaluation.intervals import score_answers
from encoder_cls.metrics.classification import (
    ClassCounts,
    average_precisions,
    best_f1_threshold,
    mean_or_zero,
    padded,
)
from encoder_cls.text.tokenizer import UNSPACED_RANGES
from encoder_cls.text.tokens import drawn_rows

# Limits that keep training within a minute and 1.5 GB for any number of texts and classes: characters, characters times
# classes (time grows with both), and weights, one per feature and class.
MOST_CHARACTERS = 40_000_000
MOST_CHARACTERS_BY_CLASSES = 500_000_000
MOST_WEIGHTS = 60_000_000
LONGEST_TEXT = 100_000  # characters read of a text, whose words are in memory at once
MOST_SCORES = 4_000_000  # texts times classes that are scored at once
TIMED_CHARACTERS, LEAST_SECONDS = (
    500_000,
    0.5,
)  # of a first sample, whose time decides the size of the sample
SCORING_SHARE = 0.4  # the time to score a character, relative to learning from one
SAFETY = 0.7  # of the time: with more text a fit takes longer per character
_LIBLINEAR = (
    Lock()
)  # one random generator per process: `random_state` fixes nothing while another fit runs

# Words, runs of punctuation, and single characters of scripts that are written without spaces.
WORD_PATTERN = rf"[{UNSPACED_RANGES}]|[^\W{UNSPACED_RANGES}]+|[^\w\s]+"


def fit_svm(
    features: Any,
    labels: NDArray[Any],
    *,
    sample_weight: NDArray[Any] | None = None,
    **options: float,
) -> Any:
    """Fit a `LinearSVC`, one at a time, so that equal texts give equal weights."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC  # most of a second

    with _LIBLINEAR, warnings.catch_warnings():
        # Contradicting labels keep it from converging, and some data has few texts per class.
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes")
        return LinearSVC(random_state=0, **options).fit(features, labels, sample_weight)


def baseline_scores(
    dataset: Dataset, split: Split, *, seconds: float | None = None
) -> dict[str, Any] | None:
    """Train the baseline on a data set and score it on a split; None if no text has a word, or memory or time is short.

    It is trained on all texts and features, or on a random sample, `texts` of `of_texts`, and its most frequent
    features, `features` of `of_features`. With a limit of `seconds`, a first, small sample decides the size of the
    sample. Texts whose label never occurs in training count as mistakes. Multi-label, it has one SVM per label, and one
    threshold, which maximizes micro-F1 on validation texts.
    """
    train = dataset.train
    num_classes = train.labels.shape[1] if dataset.is_multi_label else int(train.labels.max()) + 1
    most = min(MOST_CHARACTERS, MOST_CHARACTERS_BY_CLASSES // num_classes)
    try:
        if seconds is not None:
            most = min(most, _affordable_characters(train, split, num_classes, seconds))
            if not most:
                return None
        features = _Features.of(train, num_classes, most)
        if dataset.is_multi_label:
            scores = _score_labels(features, dataset.selection, split)
        else:
            model = fit_svm(features.matrix, features.sample.labels)
            scores = score_answers(features.scores(split, model.predict), split.labels)
    except (
        ValueError,
        MemoryError,
    ):  # ValueError of scikit-learn: no text has a word, or one class is left
        return None
    sizes = {"texts": len(features.sample), "of_texts": len(train)}
    return {
        **scores,
        **sizes,
        "features": len(features.kept),
        "of_features": len(features.vectorizer.vocabulary_),
    }


def _affordable_characters(train: Split, split: Split, num_classes: int, seconds: float) -> int:
    """The number of characters to learn from within the time that scoring the split leaves; 0 if that is too short."""
    if seconds < LEAST_SECONDS:
        return 0
    start = time.monotonic()
    features = _Features.of(train, num_classes, TIMED_CHARACTERS)
    fit_svm(
        features.matrix,
        features.sample.labels[:, 0] > 0 if train.is_multi_label else features.sample.labels,
    )
    if len(features.sample) == len(train):
        return MOST_CHARACTERS
    taken = time.monotonic() - start
    per_character = (
        taken / _lengths(features.sample).sum() * (num_classes if train.is_multi_label else 1)
    )
    most = int(SAFETY * (seconds - taken) / per_character - SCORING_SHARE * _lengths(split).sum())
    return most if most >= TIMED_CHARACTERS else 0


def _score_labels(features: _Features, validation: Split, split: Split) -> dict[str, Any]:
    num_classes, num_labels = features.num_classes, split.labels.shape[1]
    has_label = features.sample.labels > 0
    weights = np.zeros((features.matrix.shape[1], num_classes), dtype=np.float32)
    biases = np.where(has_label.all(axis=0), 1, -1).astype(np.float32)
    for label in np.flatnonzero(has_label.any(axis=0) & ~has_label.all(axis=0)):
        model = fit_svm(features.matrix, has_label[:, label])
        weights[:, label], biases[label] = model.coef_[0], model.intercept_[0]
    tuned_on, scores = (
        features.scores(it, lambda matrix: matrix @ weights + biases) for it in (validation, split)
    )
    threshold = best_f1_threshold(tuned_on.ravel(), validation.labels[:, :num_classes].ravel())
    counts = ClassCounts.of(padded(scores >= threshold, num_labels), split.labels)
    unseen = ((0, 0), (0, num_labels - num_classes))
    scores = np.pad(scores, unseen, constant_values=scores.min()).astype(np.float64)
    return {
        "micro_f1": counts.micro_f1,
        "macro_f1": counts.macro_f1,
        "mean_average_precision": mean_or_zero(average_precisions(scores, split.labels)),
    }


class _Features(NamedTuple):
    """TF-IDF of training texts, or of a random sample; `matrix` is (texts, features)."""

    sample: Split
    vectorizer: Any
    kept: NDArray[np.int64]  # the most frequent features, in their order
    matrix: Any
    num_classes: int

    @classmethod
    def of(cls, train: Split, num_classes: int, most_characters: int) -> _Features:
        """Fit features to all texts, or to a sample with `most_characters` in all."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        lengths = _lengths(train)
        if lengths.sum() > most_characters:
            train = train.subset(np.sort(drawn_rows(lengths, most_characters)))
        vectorizer = TfidfVectorizer(
            ngram_range=(1, 2), token_pattern=WORD_PATTERN, sublinear_tf=True
        )
        features = vectorizer.fit_transform(_cut(train.texts))
        by_count = np.argsort(-features.getnnz(axis=0), kind="stable")
        kept = np.sort(by_count[: max(1, MOST_WEIGHTS // num_classes)])
        return cls(train, vectorizer, kept, features[:, kept], num_classes)

    def scores(self, split: Split, score: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
        """Apply a model to the features of texts, in chunks that fit in memory."""
        at_once = max(1, MOST_SCORES // self.num_classes)
        chunks = (
            _cut(split.texts[start : start + at_once]) for start in range(0, len(split), at_once)
        )
        return np.concatenate(
            [score(self.vectorizer.transform(chunk)[:, self.kept]) for chunk in chunks]
        )


def _cut(texts: Iterable[str]) -> Iterator[str]:
    return (text[:LONGEST_TEXT] for text in texts)


def _lengths(split: Split) -> NDArray[np.int64]:
    """The number of characters of each text that the baseline reads, (texts,)."""
    return np.fromiter(map(len, _cut(split.texts)), dtype=np.int64, count=len(split))
