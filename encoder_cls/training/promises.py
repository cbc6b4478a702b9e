"""A finished classifier and held-out texts in; what it can promise of new texts, and which it calls unfamiliar, out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.familiarity import Familiarity, text_numbers
from encoder_cls.inference.logits import Logits, softmax
from encoder_cls.inference.promises import Promises
from encoder_cls.inference.serialization import save_promises
from encoder_cls.text.token_arrays import TokenizedTexts


def fit_promises(
    classifier: Classifier,
    folder: Path,
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    *,
    held_out_logits: Logits | None = None,
    after_batch: Callable[[], None],
) -> None:
    """Find out what a classifier can promise; it and its model folder then say so.

    Args:
        classifier: as it was read from the folder.
        folder: in which its header is written anew.
        texts: validation texts.
        labels: their classes, (texts,).
        held_out_logits: the calibrated logits of the texts, (texts, classes), by a classifier that did not learn from
            them, where this one did.
        after_batch: called after each batch; what it raises ends the work, and the folder stays as it was.
    """
    logits, numbers = classifier.familiarity_numbers(texts, after_batch=after_batch)
    if held_out_logits is not None:
        logits = held_out_logits
        rarity = classifier.linear.read(texts, leave_out=True).rarity if classifier.linear else None
        numbers = text_numbers(softmax(logits), texts.unknown_share, rarity)
    has_words = np.diff(texts.offsets) > 1  # blank texts get no answer
    if has_words.any():
        classifier.promises = Promises.of(softmax(logits[has_words]), labels[has_words])
    classifier.familiarity = Familiarity.of(numbers[has_words])
    save_promises(folder, classifier.promises, classifier.familiarity)
