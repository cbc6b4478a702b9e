"""The TF-IDF baseline: a linear SVM on words and pairs of words, beside which each report sets the classifier."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset, Split
from encoder_cls.evaluation.metrics import ClassCounts, average_precisions, best_f1_threshold, mean_or_zero, padded
from encoder_cls.evaluation.scores import score_answers
from encoder_cls.text.tokenizer import UNSPACED_RANGES

# What the model may read, so that it takes a minute and 1.5 GB at most, however much text and however many classes
# there are: characters, characters times classes (its time grows with both), and weights, one a feature and class.
MOST_CHARACTERS = 40_000_000
MOST_CHARACTERS_BY_CLASSES = 500_000_000
MOST_WEIGHTS = 60_000_000
LONGEST_TEXT = 100_000  # characters that it reads of a text: a text is a list of words for a moment
MOST_SCORES = 4_000_000  # texts times classes that are scored at once
# Where time is limited: of a first sample, which shows how much there is time for.
TIMED_CHARACTERS, LEAST_SECONDS = 500_000, 0.5
SCORING_SHARE = 0.4  # the time of a character that is scored, in those of one that is learned from
SAFETY = 0.7  # of the time: with more text a fit takes more of it for each character
_LIBLINEAR = Lock()  # it has one random generator a process: beside another fit, `random_state` fixes nothing

# Words, runs of punctuation, and single characters of scripts that are written without spaces.
WORD_PATTERN = rf"[{UNSPACED_RANGES}]|[^\W{UNSPACED_RANGES}]+|[^\w\s]+"


def fit_svm(features: Any, labels: NDArray[Any], *, sample_weight: NDArray[Any] | None = None, **options: float) -> Any:
    """Fit a `LinearSVC`: one after the other in a process, so that equal texts give equal weights."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC  # most of a second

    with _LIBLINEAR, warnings.catch_warnings():
        # Labels that contradict each other keep it from converging; texts held out judge what it has learned.
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes")  # a few texts each will do
        return LinearSVC(random_state=0, **options).fit(features, labels, sample_weight)


def baseline_scores(dataset: Dataset, split: Split, *, seconds: float | None = None) -> dict[str, Any] | None:
    """Train the baseline on a data set and score it on a split; None if no text has a word, or memory or time is short.

    Of more text than it may read it is trained on a random sample: `texts` of `of_texts` texts; of more features than
    it may have, on the most frequent: `features` of `of_features`. Within a number of `seconds` the sample is as large
    as a first, small one shows it to be possible. A label that never occurs in training is a mistake. Where a text may
    have several labels, there is an SVM a label, and a text has those whose scores are above one threshold, that with
    the best micro-F1 on validation texts.
    """
    train = dataset.train
    num_classes = train.labels.shape[1] if dataset.is_multi_label else int(train.labels.max()) + 1
    most = min(MOST_CHARACTERS, MOST_CHARACTERS_BY_CLASSES // num_classes)
    try:
        if seconds is not None:
            most = min(most, _affordable_characters(train, split, num_classes, seconds))
            if not most:
                return None
        features = _features(train, num_classes=num_classes, most_characters=most)
        if dataset.is_multi_label:
            scores = _score_labels(features, dataset.selection, split, num_classes)
        else:
            model = fit_svm(features.matrix, features.sample.labels)
            scores = score_answers(features.scores(split, model.predict), split.labels).to_dict()
    except (ValueError, MemoryError):  # ValueError of scikit-learn: no text has a word, or one class is left
        return None
    sizes = {"texts": len(features.sample), "of_texts": len(train)}
    return {**scores, **sizes, "features": len(features.kept), "of_features": features.num_features}


def _affordable_characters(train: Split, split: Split, num_classes: int, seconds: float) -> int:
    """The characters that there is time to learn from, once the split is scored; 0 where there is none."""
    if seconds < LEAST_SECONDS:
        return 0
    start = time.monotonic()
    features = _features(train, num_classes=num_classes, most_characters=TIMED_CHARACTERS)
    fit_svm(features.matrix, features.sample.labels[:, 0] > 0 if train.is_multi_label else features.sample.labels)
    if len(features.sample) == len(train):
        return MOST_CHARACTERS
    taken = time.monotonic() - start
    per_character = taken / sum(map(len, _cut(features.sample.texts))) * (num_classes if train.is_multi_label else 1)
    scored = sum(map(len, _cut(split.texts))) * SCORING_SHARE
    most = int(SAFETY * (seconds - taken) / per_character - scored)
    return most if most >= TIMED_CHARACTERS else 0


def _score_labels(features: _Features, validation: Split, split: Split, num_classes: int) -> dict[str, Any]:
    weights = np.zeros((features.matrix.shape[1], num_classes), dtype=np.float32)
    biases = np.zeros(num_classes, dtype=np.float32)
    for label in range(num_classes):
        is_label = features.sample.labels[:, label] > 0
        if is_label.all() or not is_label.any():
            biases[label] = 1.0 if is_label.any() else -1.0
            continue
        model = fit_svm(features.matrix, is_label)
        weights[:, label], biases[label] = model.coef_[0], model.intercept_[0]
    tuned_on, scores = (features.scores(it, lambda matrix: matrix @ weights + biases) for it in (validation, split))
    threshold = best_f1_threshold(tuned_on.ravel(), validation.labels[:, :num_classes].ravel())
    num_labels = split.labels.shape[1]
    counts = ClassCounts.of(padded(scores >= threshold, num_labels), split.labels)
    missing = ((0, 0), (0, num_labels - num_classes))
    lowest = np.pad(scores, missing, constant_values=scores.min()).astype(np.float64)
    return {
        "micro_f1": counts.micro_f1,
        "macro_f1": counts.macro_f1,
        "mean_average_precision": mean_or_zero(average_precisions(lowest, split.labels)),
    }


class _Features(NamedTuple):
    """TF-IDF of a sample of texts, (texts, features), of the features that are kept."""

    sample: Split
    vectorizer: Any
    kept: NDArray[np.int64]
    num_features: int
    matrix: Any
    texts_at_once: int

    def scores(self, split: Split, score: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
        """Apply a model to the features of texts, so many at once that memory suffices."""
        starts = range(0, len(split), self.texts_at_once)
        chunks = (_cut(split.texts[start : start + self.texts_at_once]) for start in starts)
        return np.concatenate([score(self.vectorizer.transform(chunk)[:, self.kept]) for chunk in chunks])


def _features(train: Split, *, num_classes: int, most_characters: int) -> _Features:
    """TF-IDF of as many texts, and as many features, as a model may read."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    sample = _sample(train, most_characters=most_characters)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD_PATTERN, sublinear_tf=True)
    features = vectorizer.fit_transform(_cut(sample.texts))
    # The most frequent features, in their order.
    occurrences = features.getnnz(axis=0)
    kept = np.sort(np.argsort(-occurrences, kind="stable")[: max(1, MOST_WEIGHTS // num_classes)])
    at_once = max(1, MOST_SCORES // num_classes)
    return _Features(sample, vectorizer, kept, features.shape[1], features[:, kept], at_once)


def _cut(texts: Iterable[str]) -> Iterator[str]:
    return (text[:LONGEST_TEXT] for text in texts)


def _sample(split: Split, *, most_characters: int) -> Split:
    """As many texts, drawn at random, as have so many characters together; all of them, if they have no more."""
    lengths = np.fromiter(map(len, _cut(split.texts)), dtype=np.int64, count=len(split))
    if lengths.sum() <= most_characters:
        return split
    order = np.random.default_rng(0).permutation(len(split))
    return split.subset(np.sort(order[np.cumsum(lengths[order]) <= most_characters]))
