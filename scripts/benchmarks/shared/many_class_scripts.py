"""Programs for very many classes: each reads two files, trains and scores.

python -m shared.many_class_scripts SYSTEM TRAIN TEST    # prints the accuracies as JSON
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.data import Texts, read
from shared.peers import FASTTEXT, fasttext_file, fasttext_line, tfidf_features

# fastText's usual settings for little text.
FASTTEXT_SETTINGS = {"wordNgrams": 2, "lr": 0.5, "epoch": 25, "dim": 100}
# The most probable classes of a text that count.
TOP = 5

Accuracies = dict[str, float]


def linear_svm(learned: Texts, unseen: Texts) -> Accuracies:
    """A linear SVM for each class."""
    from sklearn.svm import LinearSVC

    return linear(LinearSVC(), learned, unseen)


def sgd(learned: Texts, unseen: Texts) -> Accuracies:
    """The same, learned by stochastic gradient descent."""
    from sklearn.linear_model import SGDClassifier

    return linear(SGDClassifier(random_state=0), learned, unseen)


def linear(model: Any, learned: Texts, unseen: Texts) -> Accuracies:
    """A linear model of TF-IDF values of words and pairs of words."""
    vectorizer = tfidf_features(chars=False)
    model.fit(vectorizer.fit_transform(learned.texts), learned.labels)
    scores = model.decision_function(vectorizer.transform(unseen.texts))
    return top_accuracies(scores, model.classes_, unseen.labels)


def fasttext(learned: Texts, unseen: Texts, *, loss: str) -> Accuracies:
    """FastText with one of its two ways to have many classes: `hs` or `ova`."""
    from fasttext import train_supervised

    with tempfile.TemporaryDirectory() as folder:
        path = fasttext_file(Path(folder, "train.txt"), learned)
        options = {**FASTTEXT, **FASTTEXT_SETTINGS, "loss": loss, "seed": 0}
        model = train_supervised(input=str(path), **options)

    labels_of_texts, _ = model.predict([fasttext_line(text) for text in unseen.texts], k=TOP)
    is_first = []
    is_in_top = []
    for found, label in zip(labels_of_texts, unseen.labels, strict=True):
        names = [learned.classes[int(name.removeprefix("__label__"))] for name in found]
        is_first.append(label in names[:1])
        is_in_top.append(label in names)
    return {"accuracy": float(np.mean(is_first)), "top_5": float(np.mean(is_in_top))}


SCRIPTS: dict[str, Callable[[Texts, Texts], Accuracies]] = {
    "tfidf-svm": linear_svm,
    "tfidf-sgd": sgd,
    "fasttext-hs": partial(fasttext, loss="hs"),
    "fasttext-ova": partial(fasttext, loss="ova"),
}


def top_accuracies(
    scores: NDArray[Any], label_names: Sequence[str], labels: Sequence[str]
) -> Accuracies:
    """The accuracy, and the share of texts whose label has one of the five highest scores.

    The scores are (texts, classes).
    """
    best = np.argsort(-scores, axis=1)[:, :TOP]
    is_right = np.asarray(label_names)[best] == np.asarray(labels)[:, None]
    return {"accuracy": float(is_right[:, 0].mean()), "top_5": float(is_right.any(axis=1).mean())}


def main(system: str, train: str, test: str) -> None:
    """Train, score and print the accuracies."""
    print(json.dumps(SCRIPTS[system](read(Path(train)), read(Path(test)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
