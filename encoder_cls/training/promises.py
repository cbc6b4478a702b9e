"""A finished classifier and held-out texts in; what it can promise of new texts, and which it calls unfamiliar, out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.familiarity import Familiarity
from encoder_cls.inference.logits import softmax
from encoder_cls.inference.promises import Promises
from encoder_cls.inference.serialization import save_promises
from encoder_cls.text.token_arrays import TokenizedTexts


def fit_promises(
    classifier: Classifier,
    folder: Path,
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    *,
    after_batch: Callable[[], None],
) -> None:
    """Find out what a classifier can promise; it and its model folder then say so.

    Args:
        classifier: as `classifier_to_score` reads it.
        folder: in which its header is written anew.
        texts: validation texts.
        labels: their classes, (texts,); those beyond the classifier's are mistakes, and say nothing of what is usual.
        after_batch: called after each batch; what it raises ends the work, and the folder stays as it was.
    """
    logits, numbers = classifier.familiarity_numbers(texts, after_batch=after_batch)
    has_words = np.diff(texts.offsets) > 1  # blank texts get no answer
    if has_words.any():
        classifier.promises = Promises.of(softmax(logits[has_words]), labels[has_words])
    classifier.familiarity = Familiarity.of(numbers[has_words & (labels < logits.shape[1])])
    save_promises(folder, classifier.promises, classifier.familiarity)
