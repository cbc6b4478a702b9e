"""Finish the model of a run: save it in small number types, with its gate and its guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier, FamiliarityFeatures
from encoder_cls.classifier.familiarity import Familiarity, measure_familiarity
from encoder_cls.classifier.gate import fit_gate
from encoder_cls.classifier.guarantees import AnsweredTexts, Guarantees
from encoder_cls.classifier.model_folder import load_classifier, save_classifier, save_measurements
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.encoder.transformer import EncoderClassifier
from encoder_cls.evaluation.held_out_predictions import HeldOutPredictions, LinearPredictions
from encoder_cls.linear.linear_model import LinearModel
from encoder_cls.metrics.logits import Logits
from encoder_cls.metrics.precision_recall import ClassCounts
from encoder_cls.metrics.row_groups import RowGroups
from encoder_cls.metrics.tasks import MULTI_LABEL, task_of
from encoder_cls.run.reference import Reference
from encoder_cls.run.run_folder import RunDir
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.prepared import Prepared
from encoder_cls.weights import Weight, pack, unpack

Probabilities = NDArray[np.float64]


# The maximum number of texts on which number types are compared, and of texts times classes, if the
# time is limited.
MAX_COMPARED = 5000
MAX_COMPARED_BY_CLASSES = 1_000_000


def finish_model(
    prepared: Prepared,
    run: RunDir,
    held_out_predictions: HeldOutPredictions | None,
    *,
    device: str,
) -> Classifier:
    """Save the best model of a run in small number types, with its gate and its guarantees.

    `held_out_predictions` are from before the final linear fit; None if that does not include the
    validation texts.
    """
    texts = prepared.validation_texts
    labels = prepared.dataset.known_validation.labels

    # Each number type takes a pass over the texts, so use fewer texts if the time is limited.
    num_compared = len(labels)
    if prepared.budget.end_of_work is not None:
        num_classes = len(prepared.dataset.label_names)
        num_compared = min(MAX_COMPARED, MAX_COMPARED_BY_CLASSES // num_classes)
    model_class = prepared.model_class
    compact(
        run.model,
        texts[:num_compared],
        labels[:num_compared],
        device=device,
        model_class=model_class,
    )

    best = load_classifier(run.path, device=device, engine="torch", model_class=model_class)

    # If the best model is an encoder alone, it has learned from none of the validation texts.
    if best.linear is None:
        held_out_predictions = None

    if prepared.config.model.cascade and len(best.parts) > 1:
        part_logits = best.part_logits(texts)
        if held_out_predictions:
            # The linear model has learned from the validation texts, so use its held-out logits.
            # They have the same rows as `texts`.
            part_logits["linear"] = held_out_predictions.validation.logits
        gate = fit_gate(best, part_logits, labels, prepared.validation_groups)
        best = replace(best, gate=gate)

    held_out = _held_out_texts(best, prepared, held_out_predictions)
    best = with_guarantees(best, held_out)
    save_measurements(best, run.model)
    reference_of(best, held_out).write(run.reference)
    return best


def _held_out_texts(
    best: Classifier, prepared: Prepared, held_out_predictions: HeldOutPredictions | None
) -> HeldOutTexts:
    """The held-out texts of a run, on which its best model is measured.

    They are the validation texts that are not in train, also those whose labels do not occur there,
    and training texts that cross-validation has predicted.
    """
    dataset = prepared.dataset
    new_rows = dataset.new_validation_rows
    splits = [dataset.validation.subset(new_rows)]
    linear_predictions = []
    if held_out_predictions:
        rows = np.searchsorted(new_rows, held_out_predictions.validation.rows)
        linear_predictions.append(held_out_predictions.validation._replace(rows=rows))

    # An encoder has learned from all training texts. Without one, those that were predicted out of
    # fold follow the validation texts, so shift their rows.
    has_encoder = prepared.plan.has_encoder
    if held_out_predictions and len(held_out_predictions.train.rows) and not has_encoder:
        splits.append(dataset.train)
        rows = held_out_predictions.train.rows + len(new_rows)
        linear_predictions.append(held_out_predictions.train._replace(rows=rows))

    # The run has tokens of the known validation texts. Tokenize if more texts are measured on.
    texts = prepared.validation_texts
    num_texts = sum(len(split) for split in splits)
    if num_texts > len(texts):
        texts = best.tokenize(list(chain.from_iterable(split.texts for split in splits)))
    labels = np.concatenate([split.labels for split in splits])
    groups = np.concatenate([split.split_groups for split in splits])
    return predict_held_out(best, texts, labels, groups, linear_predictions=linear_predictions)


# The number types in which a model may be saved instead of float32, the smallest first.
SMALL_TYPES = ("int8", "float16")


def compact(
    folder: Path,
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    device: str,
    model_class: type[EncoderClassifier] | None = None,
) -> None:
    """Save a float32 classifier in the smallest number type that keeps its predictions.

    It stays as it is if no smaller type does.
    """
    exact = load_classifier(folder, device=device, engine="torch", model_class=model_class)

    # A run that was interrupted after this step and is resumed has nothing to do here.
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
    if part == "linear":
        assert classifier.linear
        linear = LinearModel.from_weights(
            weights, max_tokens=classifier.linear.max_tokens, task=classifier.task
        )
        return linear.logits(texts)

    assert classifier.encoder
    encoder = TorchEncoder.from_weights(
        classifier.encoder.architecture,
        weights,
        device=device,
        model_class=classifier.model_class or EncoderClassifier,
    )
    return encoder.logits(texts)


# The largest change of any probability that a smaller number type may cause.
MAX_PROBABILITY_CHANGE = 0.005
# The largest loss of accuracy, or of micro-F1 in multi-label tasks, that it may cause.
MAX_ACCURACY_LOSS = 0.001
# The minimum number of texts to measure such a loss. With fewer texts, no prediction may change.
MIN_TEXTS = 1000


def is_close(
    rounded: Probabilities,
    expected: Probabilities,
    labels: NDArray[Any],
    thresholds: Sequence[float] = (),
) -> bool:
    """Whether probabilities of rounded weights, (texts, classes), are as good as `expected`."""
    if not np.isfinite(rounded).all():
        return False
    if np.abs(rounded - expected).max(initial=0) > MAX_PROBABILITY_CHANGE:
        return False

    task = task_of(labels)
    predictions = task.predictions(rounded, thresholds)
    exact_predictions = task.predictions(expected, thresholds)
    if len(labels) < MIN_TEXTS:
        return bool((predictions == exact_predictions).all())

    min_score = _score(exact_predictions, labels) - MAX_ACCURACY_LOSS
    return _score(predictions, labels) >= min_score


def _score(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    if task_of(labels) is MULTI_LABEL:
        return ClassCounts.of(predictions, labels).micro_f1
    return float((predictions == labels).mean())


@dataclass(frozen=True, kw_only=True)
class HeldOutTexts:
    """Held-out texts with words, and predictions of a classifier that has not learned from them.

    Attributes:
        groups: equal for texts that belong together, (texts,).
        logits: calibrated, (texts, classes).
        familiarity_features: those of `measure_familiarity`, (texts, features).
    """

    texts: TokenizedTexts
    labels: NDArray[Any]
    groups: NDArray[np.int64]
    logits: Logits
    familiarity_features: NDArray[np.float64]


def predict_held_out(
    classifier: Classifier,
    texts: TokenizedTexts,
    labels: NDArray[Any],
    groups: NDArray[np.int64],
    *,
    linear_predictions: Sequence[LinearPredictions] = (),
) -> HeldOutTexts:
    """Predict held-out texts without the blank ones, which get no prediction.

    `linear_predictions` are for texts that the linear model has since learned from.
    """
    num_known = sum(len(predictions.rows) for predictions in linear_predictions)
    if classifier.encoder is None and 0 < num_known == len(texts):
        # All predictions are known.
        num_classes = len(classifier.label_names)
        num_features = linear_predictions[0].familiarity_features.shape[1]
        part_logits = {"linear": np.zeros((len(texts), num_classes), dtype=np.float32)}
        linear_features: FamiliarityFeatures | None = np.zeros((len(texts), num_features))
    else:
        part_logits, linear_features = classifier.part_logits_and_familiarity(texts)

    # Replace the linear model's predictions for texts that it has learned from.
    for predictions in linear_predictions:
        assert linear_features is not None
        part_logits["linear"][predictions.rows] = predictions.logits
        linear_features[predictions.rows] = predictions.familiarity_features

    logits = classifier.combined(part_logits)
    familiarity_features = measure_familiarity(
        classifier.task.probabilities(logits), texts, linear_features
    )

    # Each text begins with [CLS], so a blank one has a single token.
    with_words = np.flatnonzero(np.diff(texts.offsets) > 1)
    return HeldOutTexts(
        texts=texts.take(with_words),
        labels=labels[with_words],
        groups=groups[with_words],
        logits=logits[with_words],
        familiarity_features=familiarity_features[with_words],
    )


def with_guarantees(classifier: Classifier, held_out: HeldOutTexts) -> Classifier:
    """Measure the guarantees and the familiarity of a classifier.

    A text whose label is no class counts as a mistake, and not as familiar.
    """
    guarantees = classifier.guarantees
    answered = AnsweredTexts.of(
        classifier.task.probabilities(held_out.logits), held_out.labels, classifier.none_number
    )
    if len(answered.rows):
        groups = RowGroups(held_out.groups[answered.rows])
        guarantees = Guarantees.of(
            answered.probabilities, answered.labels, classifier.thresholds, groups=groups
        )
        if classifier.codes and classifier.codes.has_levels:
            guarantees = guarantees.with_levels(
                answered.probabilities, answered.labels, classifier.codes, groups=groups
            )
    is_known = classifier.task.are_known(held_out.labels, held_out.logits.shape[1])
    if classifier.none_number is not None:
        is_known &= held_out.labels != classifier.none_number
    familiarity = Familiarity.of(held_out.familiarity_features[is_known])
    return replace(classifier, guarantees=guarantees, familiarity=familiarity)


def reference_of(classifier: Classifier, held_out: HeldOutTexts) -> Reference:
    """Collect what a run keeps of its held-out texts."""
    is_unfamiliar = np.zeros(0, dtype=bool)
    if classifier.familiarity:
        is_unfamiliar = classifier.familiarity.are_unfamiliar(held_out.familiarity_features)
    return Reference.of(
        classifier,
        held_out.texts,
        held_out.labels,
        held_out.groups,
        logits=held_out.logits,
        is_unfamiliar=is_unfamiliar,
    )
