"""Finish the model of a run: the smallest types, the cascade, guarantees.

Labels are classes, (texts,), or all labels of each text, (texts, classes).
"""

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
from encoder_cls.inference.folder import load_classifier, save_classifier, save_measured, weights_of_part
from encoder_cls.inference.guarantees import Familiarity, Guarantees
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.task import Logits, combine_logits, softmax
from encoder_cls.inference.weights import DTYPES, Weight, pack, unpack
from encoder_cls.text.token_arrays import TokenizedTexts
from encoder_cls.tracking.run_dir import RunDir, classifier_to_score
from encoder_cls.training.cascade import fit_gate
from encoder_cls.training.prepared import Prepared

MOST_COMPARED = 5000  # texts whose answers the smallest types keep, where time is limited
MOST_CHANGE = 0.005  # of any probability by the types
MOST_ACCURACY_LOST = 0.001  # or of micro-F1; one text at least of so many:
ENOUGH_TEXTS = 1000  # with fewer, no answer may change


def finish_model(prepared: Prepared, run: RunDir, *, device: str) -> Classifier:
    """Save the best weights in the smallest types, with gate and guarantees, and load them."""
    dataset, texts, labels = prepared.dataset, prepared.validation_texts, prepared.dataset.selection.labels
    if len(labels):
        # Where time is limited, of fewer texts: each type takes a pass over them.
        most = len(labels) if prepared.budget.left is None else MOST_COMPARED
        compact(run.model, texts[:most], labels[:most], device=device)
    best = classifier_to_score(run.path, device=device)
    if not len(labels):
        return best
    if prepared.config.model.cascade:
        fit_gate(best, texts, labels)
    answers_all = prepared.plan.answers_labels_out_of_fold
    held_out = [dataset.validation, *([dataset.train] if answers_all else [])]
    if held_out[-1] is not dataset.selection:
        texts = best.tokenize([text for split in held_out for text in split.texts])
    fit_guarantees(best, texts, np.concatenate([split.labels for split in held_out]))
    save_measured(best, run.model)
    return best


def compact(folder: Path, texts: TokenizedTexts, labels: NDArray[Any], *, device: str) -> dict[str, str]:
    """Save the float32 classifier of a folder in the smallest types that keep its answers to validation texts.

    Returns the type of each part.
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
    several = len(thresholds) > 0
    answers, exact = (it >= np.array(thresholds) if several else it.argmax(axis=1) for it in (found, expected))
    if len(labels) < ENOUGH_TEXTS:
        return bool((answers == exact).all())
    score, exact_score = (
        ClassCounts.of(it, labels).micro_f1 if several else (it == labels).mean() for it in (answers, exact)
    )
    return bool(score >= exact_score - MOST_ACCURACY_LOST)


def _by_size(classifier: Classifier) -> list[dict[str, str]]:
    """The types that the parts can have, the smallest together first."""

    @cache
    def size(part: str, dtype: str) -> int:
        return sum(tensor.nbytes for tensor in pack(weights_of_part(classifier, part), dtype).values())

    choices = [
        dict(zip(classifier.parts, dtypes, strict=True)) for dtypes in product(DTYPES, repeat=len(classifier.parts))
    ]
    return sorted(choices, key=lambda dtypes: sum(size(*choice) for choice in dtypes.items()))


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
