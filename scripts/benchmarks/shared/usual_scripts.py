"""The scripts that people write for much text: each reads two files, trains once and scores.

    python -m shared.usual_scripts SYSTEM TRAIN TEST SECONDS    # prints the accuracy as JSON

TRAIN and TEST are Parquet files. Only `hashing-sgd` can stop at any time: it ends after so many
seconds, 0 for no limit. The others learn from all texts.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from shared.data import Texts, read
from shared.peers import (
    FASTTEXT,
    TOKEN,
    Predict,
    accuracy,
    fasttext_file,
    fasttext_model,
    linear_predictions,
    tfidf_features,
)

# The number of texts that `hashing-sgd` learns from at once, and its passes over all texts.
CHUNK = 10_000
PASSES = 5

# fastText's usual settings for much text.
FASTTEXT_SETTINGS = {"wordNgrams": 2, "lr": 0.5, "epoch": 5, "dim": 20}


def hashing_sgd(train: Texts, end: float) -> Predict:
    """Hashed words and pairs of words, and linear SVMs by stochastic gradient descent."""
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.linear_model import SGDClassifier

    vectorizer = HashingVectorizer(ngram_range=(1, 2), token_pattern=TOKEN, n_features=1 << 20)
    model = SGDClassifier(alpha=1e-6, average=True, random_state=0)
    order = np.random.default_rng(0).permutation(len(train.texts))

    for first in PASSES * list(range(0, len(order), CHUNK)):
        chunk = train.take(order[first : first + CHUNK])
        features = vectorizer.transform(chunk.texts)
        model.partial_fit(features, chunk.labels, classes=train.classes)
        if time.monotonic() >= end:
            break
    return partial(linear_predictions, vectorizer, model)


def tfidf_svm(train: Texts, _end: float) -> Predict:
    """TF-IDF of words and pairs of words, and a linear SVM for each class."""
    from sklearn.svm import LinearSVC

    vectorizer = tfidf_features(chars=False)
    model = LinearSVC().fit(vectorizer.fit_transform(train.texts), train.labels)
    return partial(linear_predictions, vectorizer, model)


def fasttext(train: Texts, _end: float) -> Predict:
    """Train fastText on words and pairs of words."""
    with tempfile.TemporaryDirectory() as folder:
        path = fasttext_file(Path(folder, "train.txt"), train)
        return fasttext_model(path, train.classes, {**FASTTEXT, **FASTTEXT_SETTINGS, "seed": 0})


SCRIPTS: dict[str, Callable[[Texts, float], Predict]] = {
    "fasttext": fasttext,
    "hashing-sgd": hashing_sgd,
    "tfidf-svm": tfidf_svm,
}


def main(system: str, train: str, test: str, seconds: str) -> None:
    """Train, score and print the accuracy."""
    end = np.inf
    if float(seconds):
        end = time.monotonic() + float(seconds)
    predict = SCRIPTS[system](read(Path(train)), float(end))
    print(json.dumps({"accuracy": accuracy(predict, read(Path(test)))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
