"""Two labelled splits in, the scores of a linear model out: what a classifier has to beat to earn its keep."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.data.dataset import Split
from encoder_cls.evaluation.parts import score_answers

# What the model may read, so that it takes a minute and 1.5 GB at most, however much text and however many classes
# there are: characters, characters times classes (its time grows with both), and weights, one a feature and class.
MOST_CHARACTERS = 40_000_000
MOST_CHARACTERS_BY_CLASSES = 500_000_000
MOST_WEIGHTS = 60_000_000
LONGEST_TEXT = 100_000  # characters that it reads of a text: a text is a list of words for a moment
MOST_SCORES = 4_000_000  # texts times classes that are scored at once

# Words, runs of punctuation, and single characters of scripts that are written without spaces.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
WORD_PATTERN = rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]+"


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
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    num_classes = int(train.labels.max()) + 1
    sample = _sample(train, most_characters=min(MOST_CHARACTERS, MOST_CHARACTERS_BY_CLASSES // num_classes))
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD_PATTERN, sublinear_tf=True)
    try:
        features = vectorizer.fit_transform(_cut(sample.texts))
        kept = _most_frequent(features.getnnz(axis=0), MOST_WEIGHTS // num_classes)
        model = LinearSVC(random_state=0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The number of unique classes")  # a few texts each will do
            model.fit(features[:, kept], sample.labels)
        texts_at_once = max(1, MOST_SCORES // num_classes)
        predictions = np.concatenate(
            [
                model.predict(vectorizer.transform(_cut(split.texts[start : start + texts_at_once]))[:, kept])
                for start in range(0, len(split), texts_at_once)
            ]
        )
    except (ValueError, MemoryError):  # ValueError of scikit-learn: no text has a word, or one class is left
        return None
    return {
        **asdict(score_answers(predictions, split.labels)),
        "texts": len(sample),
        "of_texts": len(train),
        "features": len(kept),
        "of_features": features.shape[1],
    }


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
