"""The TF-IDF baseline."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Dataset
from encoder_cls.data.split import Split
from encoder_cls.evaluation.metrics import average_precisions, best_f1_threshold, f1_scores
from encoder_cls.evaluation.scores import score_answers

# What the model may read, so that it takes a minute and 1.5 GB at most, however much text and however many classes
# there are: characters, characters times classes (its time grows with both), and weights, one a feature and class.
MOST_CHARACTERS = 40_000_000
MOST_CHARACTERS_BY_CLASSES = 500_000_000
MOST_WEIGHTS = 60_000_000
LONGEST_TEXT = 100_000  # characters that it reads of a text: a text is a list of words for a moment
MOST_SCORES = 4_000_000  # texts times classes that are scored at once
_LIBLINEAR = Lock()  # it has one random generator a process: beside another fit, `random_state` fixes nothing

# Words, runs of punctuation, and single characters of scripts that are written without spaces.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
WORD_PATTERN = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]+"


def fit_svm(features: Any, labels: NDArray[Any], *, sample_weight: NDArray[Any] | None = None, **options: float) -> Any:
    """Fit a `LinearSVC`: one after the other in a process, so that equal texts give equal weights."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC  # most of a second

    with _LIBLINEAR, warnings.catch_warnings():
        # Labels that contradict each other keep it from converging; texts held out judge what it has learned.
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes")  # a few texts each will do
        return LinearSVC(random_state=0, **options).fit(features, labels, sample_weight)


def reference_of(dataset: Dataset, split: Split) -> dict[str, Any] | None:
    """What a linear model that learns from a data set scores on a split, by the measures of its task."""
    if dataset.is_multi_label:
        return multi_label_reference(dataset.train, dataset.selection, split)
    return linear_reference(dataset.train, split)


def linear_reference(train: Split, split: Split) -> dict[str, Any] | None:
    """Accuracy and macro-F1 of a linear SVM on TF-IDF of words and pairs of words.

    Of more text than it may read it is trained on a random sample: `texts` of `of_texts` texts; of more features than
    it may have, on the most frequent: `features` of `of_features`.

    Args:
        train: what it is trained on.
        split: what it is scored on; a label that never occurs in `train` is a mistake.

    Returns:
        The scores, as `PartScores` has them; none where no text has a word, or where memory does not suffice.
    """
    num_classes = int(train.labels.max()) + 1
    try:
        features = _features(train, num_classes=num_classes)
        model = fit_svm(features.matrix, features.sample.labels)
        predictions = features.scores(split, model.predict, num_classes=num_classes)
    except (ValueError, MemoryError):  # ValueError of scikit-learn: no text has a word, or one class is left
        return None
    return {
        **asdict(score_answers(predictions, split.labels)),
        **features.sizes(train),
    }


def multi_label_reference(train: Split, validation: Split, split: Split) -> dict[str, Any] | None:
    """Micro-F1, macro-F1 and mean average precision of a linear SVM a label, on TF-IDF as in `linear_reference`.

    A text has the labels whose scores are above one threshold, that with the best micro-F1 on validation texts.

    Args:
        train: what it is trained on; its labels are (texts, labels).
        validation: what the threshold is chosen on.
        split: what it is scored on; a label that never occurs in `train` is never given.

    Returns:
        The scores; none where no text has a word, or where memory does not suffice.
    """
    num_classes = train.labels.shape[1]
    try:
        features = _features(train, num_classes=num_classes)
        weights = np.zeros((features.matrix.shape[1], num_classes), dtype=np.float32)
        biases = np.zeros(num_classes, dtype=np.float32)
        for label in range(num_classes):
            is_label = features.sample.labels[:, label] > 0
            if is_label.all() or not is_label.any():
                biases[label] = 1.0 if is_label.any() else -1.0
                continue
            model = fit_svm(features.matrix, is_label)
            weights[:, label], biases[label] = model.coef_[0], model.intercept_[0]
        tuned_on, scores = (
            features.scores(it, lambda matrix: matrix @ weights + biases, num_classes=num_classes)
            for it in (validation, split)
        )
    except (ValueError, MemoryError):  # as above
        return None
    threshold = best_f1_threshold(tuned_on.ravel(), validation.labels[:, :num_classes].ravel())
    missing = split.labels.shape[1] - num_classes
    found = f1_scores(np.pad(scores >= threshold, ((0, 0), (0, missing))), split.labels)
    lowest = np.pad(scores, ((0, 0), (0, missing)), constant_values=scores.min())
    precisions = average_precisions(lowest.astype(np.float64), split.labels)
    return {
        "micro_f1": found.micro,
        "macro_f1": found.macro,
        "mean_average_precision": float(np.nanmean(precisions)) if (split.labels > 0).any() else 0.0,
        **features.sizes(train),
    }


class _Features(NamedTuple):
    """TF-IDF of a sample of texts, (texts, features), of the features that are kept."""

    sample: Split
    vectorizer: Any
    kept: NDArray[np.int64]
    num_features: int
    matrix: Any

    def scores(self, split: Split, score: Callable[[Any], NDArray[Any]], *, num_classes: int) -> NDArray[Any]:
        """What a model says of the features of texts, so many at once that memory suffices."""
        at_once = max(1, MOST_SCORES // num_classes)
        return np.concatenate(
            [
                score(self.vectorizer.transform(_cut(split.texts[start : start + at_once]))[:, self.kept])
                for start in range(0, len(split), at_once)
            ]
        )

    def sizes(self, train: Split) -> dict[str, float]:
        """On how many texts and features of how many a model was trained."""
        return {
            "texts": len(self.sample),
            "of_texts": len(train),
            "features": len(self.kept),
            "of_features": self.num_features,
        }


def _features(train: Split, *, num_classes: int) -> _Features:
    """Those of as many texts, and as many features, as a model may read."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    sample = _sample(train, most_characters=min(MOST_CHARACTERS, MOST_CHARACTERS_BY_CLASSES // num_classes))
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD_PATTERN, sublinear_tf=True)
    features = vectorizer.fit_transform(_cut(sample.texts))
    kept = _most_frequent(features.getnnz(axis=0), MOST_WEIGHTS // num_classes)
    return _Features(sample, vectorizer, kept, features.shape[1], features[:, kept])


def _cut(texts: Iterable[str]) -> Iterator[str]:
    return (text[:LONGEST_TEXT] for text in texts)


def _sample(split: Split, *, most_characters: int) -> Split:
    """As many texts, drawn at random, as have so many characters together; all of them, if they have no more."""
    lengths = np.fromiter(map(len, _cut(split.texts)), dtype=np.int64, count=len(split))
    if lengths.sum() <= most_characters:
        return split
    order = np.random.default_rng(0).permutation(len(split))
    return split.subset(np.sort(order[np.cumsum(lengths[order]) <= most_characters]))


def _most_frequent(occurrences: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """The indices of the features that occur in most texts, in their order."""
    return np.sort(np.argsort(-occurrences, kind="stable")[: max(1, limit)])
