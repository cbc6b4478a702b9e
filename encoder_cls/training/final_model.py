"""Finish the model of a run: the smallest types, the gate of a cascade, guarantees.

Labels are class numbers, (texts,), or for multi-label tasks indicators, (texts, classes).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.familiarity import Familiarity, measure_familiarity
from encoder_cls.classifier.gate import fit_gate
from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.classifier.model_folder import load_classifier, save_classifier, save_measured
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions, Predictions
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.metrics.classification import ClassCounts
from encoder_cls.metrics.logits import Logits, softmax
from encoder_cls.run.run_folder import RunDir
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.prepared import Prepared
from encoder_cls.weights import Weight, pack, unpack

Probabilities = NDArray[np.float64]


def finish_model(
    prepared: Prepared, run: RunDir, table: HeldOutPredictions | None, *, device: str
) -> Classifier:
    """Save the best weights in the smallest types, with gate and guarantees, and load them.

    `table` has the predictions of the linear model from before it was fitted again, if it was.
    """
    texts = prepared.validation_texts
    labels = prepared.dataset.known_validation.labels
    if len(labels):
        # Each type takes a pass over the texts: where time is limited, over fewer of them.
        most = len(labels) if prepared.budget.left is None else MAX_COMPARED
        compact(run.model, texts[:most], labels[:most], device=device)

    best = load_classifier(run.path, device=device, engine="torch")
    if not len(labels):
        return best
    if best.linear is None:
        table = None

    if prepared.config.model.cascade:
        part_logits = best.part_logits(texts)
        if table:
            # The table has the texts of `known_validation`, in order.
            part_logits["linear"] = table.validation.logits
        best.gate = fit_gate(best, part_logits, labels)

    _measure_guarantees(best, prepared, table)
    save_measured(best, run.model)
    return best


def _measure_guarantees(
    best: Classifier, prepared: Prepared, table: HeldOutPredictions | None
) -> None:
    """Add the guarantees to the classifier.

    They also count validation texts whose labels never occur in train, and where cross-validation
    has predicted all labelled texts, these.
    """
    dataset = prepared.dataset
    splits = [dataset.validation]
    earlier = []
    if table:
        earlier.append(table.validation)
    if table and prepared.plan.predicts_labels_out_of_fold:
        splits.append(dataset.train)
        rows = table.train.rows + len(dataset.validation)
        earlier.append(table.train._replace(rows=rows))

    texts = prepared.validation_texts
    if splits != [dataset.known_validation]:
        texts = best.tokenize(list(chain.from_iterable(split.texts for split in splits)))
    labels = np.concatenate([split.labels for split in splits])
    fit_guarantees(best, texts, labels, earlier=earlier)


# The types of numbers in a model folder to try, the smallest first.
SMALL_TYPES = ("int8", "float16")
# The texts on which types are compared, where time is limited.
MAX_COMPARED = 5000


def compact(folder: Path, texts: TokenizedTexts, labels: NDArray[Any], *, device: str) -> None:
    """Save the float32 classifier of a folder in the smallest type that keeps its predictions."""
    exact = load_classifier(folder, device=device, engine="torch")

    # A resumed run may have been stopped after this.
    if set(exact.dtypes.values()) != {"float32"}:
        return

    expected = _probabilities(exact, "float32", texts, device=device)
    for dtype in SMALL_TYPES:
        rounded = _probabilities(exact, dtype, texts, device=device)
        if is_close(rounded, expected, labels, exact.thresholds):
            save_classifier(exact, folder, dtypes=dict.fromkeys(exact.parts, dtype))
            return


def _probabilities(
    classifier: Classifier, dtype: str, texts: TokenizedTexts, *, device: str
) -> Probabilities:
    """The probabilities of a classifier whose weights are rounded to a type, (texts, classes)."""
    part_logits = {}
    for part in classifier.parts:
        weights = getattr(classifier, part).named_weights()
        shapes = {name: weight.shape for name, weight in weights.items()}
        rounded = unpack(pack(weights, dtype), shapes, dtype)
        part_logits[part] = _logits(classifier, part, rounded, texts, device=device)

    return classifier.task.probabilities(classifier.mixture.combined(part_logits))


def _logits(
    classifier: Classifier,
    part: str,
    weights: dict[str, Weight],
    texts: TokenizedTexts,
    *,
    device: str,
) -> Logits:
    """The logits of a part with these weights in place of its own, (texts, classes)."""
    if part == "linear":
        assert classifier.linear
        linear = LinearModel.from_weights(
            weights, max_tokens=classifier.linear.max_tokens, task=classifier.task
        )
        return linear.logits(texts)

    assert classifier.encoder
    encoder = TorchEncoder.from_weights(classifier.encoder.architecture, weights, device=device)
    return encoder.logits(texts)


# The most that a probability may change by smaller types.
MAX_CHANGE = 0.005
# The most accuracy, or micro-F1, that may be lost.
MAX_ACCURACY_LOST = 0.001
# With fewer texts, no prediction may change.
MIN_TEXTS = 1000


def is_close(
    rounded: Probabilities,
    expected: Probabilities,
    labels: NDArray[Any],
    thresholds: Sequence[float] = (),
) -> bool:
    """Whether probabilities of rounded weights, (texts, classes), are as good as those expected.

    Multi-label tasks have thresholds.
    """
    if not np.isfinite(rounded).all():
        return False
    if np.abs(rounded - expected).max(initial=0) > MAX_CHANGE:
        return False

    if thresholds:
        predictions = rounded >= np.array(thresholds)
        exact_predictions = expected >= np.array(thresholds)
    else:
        predictions = rounded.argmax(axis=1)
        exact_predictions = expected.argmax(axis=1)
    if len(labels) < MIN_TEXTS:
        return bool((predictions == exact_predictions).all())

    least = _score(exact_predictions, labels) - MAX_ACCURACY_LOST
    return _score(predictions, labels) >= least


def _score(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    """Accuracy, or multi-label micro-F1."""
    if labels.ndim > 1:
        return ClassCounts.of(predictions, labels).micro_f1
    return float((predictions == labels).mean())


def fit_guarantees(
    classifier: Classifier,
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    earlier: Sequence[Predictions] = (),
) -> None:
    """Measure the guarantees of a classifier on held-out texts, and add them to it.

    Labels beyond the classifier's classes count as mistakes, and their texts not as familiar.
    Multi-label tasks get no guarantees. `earlier` are predictions of the linear part for some of
    the texts, from before it learned from these.
    """
    part_logits, linear_features = classifier.part_logits_and_familiarity(texts)
    for predictions in earlier:
        assert linear_features is not None
        part_logits["linear"][predictions.rows] = predictions.logits
        linear_features[predictions.rows] = predictions.familiarity_features

    logits = classifier.combined(part_logits)
    familiarity_features = measure_familiarity(
        classifier.task.probabilities(logits), texts, linear_features
    )

    # Blank texts get no prediction.
    has_words = np.diff(texts.offsets) > 1
    is_familiar = has_words
    if labels.ndim == 1:
        is_familiar = has_words & (labels < logits.shape[1])
        if has_words.any():
            classifier.guarantees = Guarantees.of(softmax(logits[has_words]), labels[has_words])
    classifier.familiarity = Familiarity.of(familiarity_features[is_familiar])
