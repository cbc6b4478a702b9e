"""Finish the model of a run: save it in the smallest types, with its guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.evaluation.metrics import ClassCounts
from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.encoder.torch import TorchEncoder
from encoder_cls.inference.folder import load_classifier, save_classifier, weights_of_part
from encoder_cls.inference.guarantees import Familiarity, Guarantees
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import Logits, combine_logits, softmax
from encoder_cls.inference.weights import DTYPES, Weight, pack, unpack
from encoder_cls.text.tokens import TokenizedTexts

MOST_CHANGE = 0.005  # of any probability
MOST_ACCURACY_LOST = 0.001  # or of micro-F1; one text at least of so many:
ENOUGH_TEXTS = 1000  # with fewer, no answer may change


def compact(folder: Path, texts: TokenizedTexts, labels: NDArray[Any], *, device: str) -> dict[str, str]:
    """Save the float32 classifier of a folder in the smallest types that keep its answers to validation texts.

    Labels are classes, (texts,), or all labels of each text, (texts, classes). Returns the type of each part.
    """
    exact = load_classifier(folder, device=device, engine="torch")
    if set(exact.dtypes.values()) != {"float32"}:  # a run that was stopped after this, and goes on
        return exact.dtypes

    @cache
    def logits(part: str, dtype: str) -> Logits:
        return _logits(exact, part, dtype, texts, device=device)

    def probabilities(dtypes: dict[str, str]) -> NDArray[np.float64]:
        parts = [logits(part, dtype) for part, dtype in dtypes.items()]
        return exact.task.probabilities(combine_logits(parts, exact.mixture_weights).astype(np.float32))

    expected = probabilities(dict.fromkeys(exact.parts, "float32"))
    for dtypes in _by_size(exact):
        if is_close(probabilities(dtypes), expected, labels, exact.thresholds):
            save_classifier(exact, folder, dtypes=dtypes)
            return dtypes
    return exact.dtypes


def is_close(
    found: NDArray[np.float64], expected: NDArray[np.float64], labels: NDArray[Any], thresholds: Sequence[float] = ()
) -> bool:
    """Whether probabilities, (texts, classes), are as good as others; thresholds are those of several labels."""
    if not np.isfinite(found).all() or np.abs(found - expected).max(initial=0) > MOST_CHANGE:
        return False
    if thresholds:
        of_labels, exact_of_labels = found >= np.array(thresholds), expected >= np.array(thresholds)
        if len(labels) < ENOUGH_TEXTS:
            return bool((of_labels == exact_of_labels).all())
        micro_f1, exact_micro_f1 = (ClassCounts.of(it, labels).micro_f1 for it in (of_labels, exact_of_labels))
        return micro_f1 >= exact_micro_f1 - MOST_ACCURACY_LOST
    answers, exact_answers = found.argmax(axis=1), expected.argmax(axis=1)
    if len(labels) < ENOUGH_TEXTS:
        return bool((answers == exact_answers).all())
    return bool((answers == labels).mean() >= (exact_answers == labels).mean() - MOST_ACCURACY_LOST)


def _by_size(classifier: Classifier) -> list[dict[str, str]]:
    """The types that the parts can have, the smallest together first."""
    sizes = {
        (part, dtype): sum(tensor.nbytes for tensor in pack(weights_of_part(classifier, part), dtype).values())
        for part in classifier.parts
        for dtype in DTYPES
    }
    products = product(DTYPES, repeat=len(classifier.parts))
    choices = [dict(zip(classifier.parts, dtypes, strict=True)) for dtypes in products]
    return sorted(choices, key=lambda dtypes: sum(sizes[choice] for choice in dtypes.items()))


def _logits(classifier: Classifier, part: str, dtype: str, texts: TokenizedTexts, *, device: str) -> Logits:
    """The logits of a part that is saved in a type and read again."""
    weights = weights_of_part(classifier, part)
    shapes = {name: weight.shape for name, weight in weights.items()}
    rounded: dict[str, Weight] = unpack(pack(weights, dtype), shapes, dtype)
    if part == "linear":
        assert classifier.linear
        max_tokens, task = classifier.linear.max_tokens, classifier.task
        return LinearClassifier.from_weights(rounded, max_tokens=max_tokens, task=task).logits(texts)
    assert classifier.encoder
    encoder = TorchEncoder.from_weights(classifier.encoder.architecture, rounded, device=device, precision="float32")
    return encoder.logits(texts)


def fit_guarantees(classifier: Classifier, texts: TokenizedTexts, labels: NDArray[Any]) -> None:
    """Measure the guarantees of a classifier on validation texts, and add them to it.

    Labels beyond the classifier's classes count as mistakes, and are left out of the measure of usual texts. Of several
    labels nothing is guaranteed.
    """
    logits, numbers = classifier.familiarity_numbers(texts)
    is_usual = has_words = np.diff(texts.offsets) > 1  # blank texts get no answer
    if labels.ndim == 1:
        is_usual = has_words & (labels < logits.shape[1])
        if has_words.any():
            classifier.guarantees = Guarantees.of(softmax(logits[has_words]), labels[has_words])
    classifier.familiarity = Familiarity.of(numbers[is_usual])
