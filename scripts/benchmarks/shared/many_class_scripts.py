"""Linear models of scikit-learn for very many classes: each reads two files, trains and scores.

python -m shared.many_class_scripts SYSTEM TRAIN TEST    # prints the accuracies as JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.data import read
from shared.peers import tfidf_features


def linear_svm() -> Any:
    """A linear SVM for each class."""
    from sklearn.svm import LinearSVC

    return LinearSVC()


def sgd() -> Any:
    """The same, learned by stochastic gradient descent."""
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(random_state=0)


SCRIPTS: dict[str, Callable[[], Any]] = {"tfidf-svm": linear_svm, "tfidf-sgd": sgd}


def top_accuracies(
    scores: NDArray[Any], label_names: Sequence[str], labels: Sequence[str]
) -> dict[str, float]:
    """The accuracy, and the share of texts whose label has one of the five highest scores.

    The scores are (texts, classes).
    """
    best = np.argsort(-scores, axis=1)[:, :5]
    is_right = np.asarray(label_names)[best] == np.asarray(labels)[:, None]
    return {"accuracy": float(is_right[:, 0].mean()), "top_5": float(is_right.any(axis=1).mean())}


def main(system: str, train: str, test: str) -> None:
    """Train, score and print the accuracies."""
    learned = read(Path(train))
    unseen = read(Path(test))
    vectorizer = tfidf_features(chars=False)
    model = SCRIPTS[system]().fit(vectorizer.fit_transform(learned.texts), learned.labels)

    scores = model.decision_function(vectorizer.transform(unseen.texts))
    print(json.dumps(top_accuracies(scores, model.classes_, unseen.labels)))


if __name__ == "__main__":
    main(*sys.argv[1:])
