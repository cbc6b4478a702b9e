"""Test quickly how well a label is predicted from the words of a text, as classes are."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# The number of texts of the test, of which a half is learned from; more would hardly change it.
MAX_TEXTS = 3000
# The number of words of a text that are read.
MAX_WORDS = 100
# The number of numbers that words are hashed to.
BUCKETS = 1 << 14
# The count that each word has in each class before any text is read (Laplace smoothing).
SMOOTHING = 0.1

_WORD = re.compile(r"\w+")


class LabelPredictability(NamedTuple):
    """The accuracy of a quick model.

    Attributes:
        accuracy: of a naive Bayes model of words.
        without_words: of the most frequent label.
    """

    accuracy: float
    without_words: float

    @property
    def gain(self) -> float:
        """The share of the other labels that words explain, from 0 to 1."""
        others = 1 - self.without_words
        if not others:
            return 0.0
        return max(0.0, (self.accuracy - self.without_words) / others)


def label_predictability(texts: Sequence[str], labels: Sequence[str]) -> LabelPredictability:
    """Learn multinomial naive Bayes from half of the texts, and test it on the others."""
    stride = max(1, len(texts) // MAX_TEXTS)
    words = [_hashed_words(text) for text in texts[::stride]]
    names, numbers = np.unique(labels[::stride], return_inverse=True)

    # Alternate between learning and testing, in an order that is not that of the file.
    order = np.random.default_rng(0).permutation(len(words))
    learned = order[::2]
    tested = order[1::2]
    if not len(tested):
        return LabelPredictability(0.0, 1.0)

    weights, biases = _fit(words, numbers, learned, num_classes=len(names))
    num_right = 0
    for row in tested:
        scores = biases + weights[:, words[row]].sum(axis=1)
        num_right += int(scores.argmax() == numbers[row])

    most_frequent = Counter(numbers[learned].tolist()).most_common(1)[0][0]
    without_words = float(np.mean(numbers[tested] == most_frequent))
    return LabelPredictability(num_right / len(tested), without_words)


def _fit(
    words: Sequence[NDArray[np.int64]],
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    num_classes: int,
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Fit log probabilities of words in classes, (classes, words), and of classes."""
    counts = np.full((num_classes, BUCKETS), SMOOTHING, dtype=np.float32)
    for row in rows:
        np.add.at(counts[labels[row]], words[row], 1)
    weights = np.log(counts / counts.sum(axis=1, keepdims=True))

    rows_of_classes = np.bincount(labels[rows], minlength=num_classes)
    return weights, np.log(rows_of_classes + SMOOTHING)


def _hashed_words(text: str) -> NDArray[np.int64]:
    words = _WORD.findall(text.lower())[:MAX_WORDS]
    numbers = [zlib.crc32(word.encode("utf-8", "replace")) % BUCKETS for word in words]
    return np.array(numbers, dtype=np.int64)
