"""A program that uses the library, for mypy alone: each type is what a user of it expects."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from encoder_cls import Classifier, Prediction, load_classifier


def client(folder: Path) -> None:
    """Load a classifier, then call each of its methods."""
    classifier = load_classifier(folder, engine="numpy")
    assert_type(classifier, Classifier)
    assert_type(classifier.predict(["a text"]), list[Prediction])
    assert_type(classifier.predict(["a text"])[0].top(3), list[tuple[str, float]])
    assert_type(classifier.predict_proba(["a text"]), NDArray[np.float64])
    assert_type(classifier.embed(["a text"]), NDArray[np.float32])
    assert_type(classifier.label_names, tuple[str, ...])
