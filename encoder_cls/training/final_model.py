"""Finish the model of a run: the smallest types, the gate of a cascade, guarantees.

Labels are class numbers, (texts,), or for multi-label tasks indicators, (texts, classes).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.familiarity import Familiarity, text_numbers
from encoder_cls.classifier.gate import fit_gate
from encoder_cls.classifier.guarantees import Guarantees
from encoder_cls.classifier.model_folder import load_classifier, save_classifier, save_measured
from encoder_cls.encoder.torch_encoder import TorchEncoder
from encoder_cls.evaluation.held_out_answers import Answers, HeldOutAnswers
from encoder_cls.linear.linear_model import LinearClassifier
from encoder_cls.metrics.classification import ClassCounts
from encoder_cls.metrics.logits import Logits, softmax
from encoder_cls.run.run_folder import RunDir
from encoder_cls.text.tokens import TokenizedTexts
from encoder_cls.training.prepared import Prepared
from encoder_cls.weights import Weight, pack, unpack

Probabilities = NDArray[np.float64]

# Of the types of numbers in a model folder, the smallest first.
SMALL_TYPES = ("int8", "float16")
MOST_COMPARED = 5000  # texts on which types are compared, where time is limited
MOST_CHANGE = 0.005  # of any probability, by smaller types
MOST_ACCURACY_LOST = 0.001  # or micro-F1, by smaller types
ENOUGH_TEXTS = 1000  # with fewer texts, no answer may change


def finish_model(prepared: Prepared, run: RunDir, *, device: str) -> Classifier:
    """Save the best weights in the smallest types, with gate and guarantees, and load them."""
    dataset, texts = prepared.dataset, prepared.validation_texts
    labels = dataset.selection.labels
    if len(labels):
        # Where time is limited, on fewer texts: each type takes a pass over them.
        most = len(labels) if prepared.budget.left is None else MOST_COMPARED
        compact(run.model, texts[:most], labels[:most], device=device)
    best = load_classifier(run.path, device=device, engine="torch")
    if not len(labels):
        return best

    table = None
    if best.linear and run.held_out_answers.exists():
        table = HeldOutAnswers.read(run.held_out_answers)

    if prepared.config.model.cascade:
        part_logits = best.part_logits(texts)
        if table:  # which has the texts of `selection`, in order
            part_logits["linear"] = table.validation.logits
        best.gate = fit_gate(best, part_logits, labels)

    # Guarantees also count validation texts whose labels never occur in train, and where each labelled text has an
    # answer of cross-validation, all labelled texts.
    held_out, earlier = [dataset.validation], [table.validation] if table else []
    if table and prepared.plan.answers_labels_out_of_fold:
        held_out.append(dataset.train)
        rows = table.train.rows + len(dataset.validation)
        earlier.append(table.train._replace(rows=rows))
    if held_out[-1] is not dataset.selection:
        texts = best.tokenize([text for split in held_out for text in split.texts])
    labels = np.concatenate([split.labels for split in held_out])
    fit_guarantees(best, texts, labels, earlier=earlier)

    save_measured(best, run.model)
    return best


def compact(folder: Path, texts: TokenizedTexts, labels: NDArray[Any], *, device: str) -> None:
    """Save the float32 classifier of a folder in the smallest type that keeps its answers to validation texts."""
    exact = load_classifier(folder, device=device, engine="torch")
    if set(exact.dtypes.values()) != {"float32"}:  # a resumed run, which was stopped after this
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
        linear = LinearClassifier.from_weights(
            weights, max_tokens=classifier.linear.max_tokens, task=classifier.task
        )
        return linear.logits(texts)

    assert classifier.encoder
    encoder = TorchEncoder.from_weights(classifier.encoder.architecture, weights, device=device)
    return encoder.logits(texts)


def is_close(
    rounded: Probabilities,
    expected: Probabilities,
    labels: NDArray[Any],
    thresholds: Sequence[float] = (),
) -> bool:
    """Whether probabilities of rounded weights, (texts, classes), are as good; multi-label tasks have thresholds."""
    if not np.isfinite(rounded).all():
        return False
    if np.abs(rounded - expected).max(initial=0) > MOST_CHANGE:
        return False

    if thresholds:
        answers = rounded >= np.array(thresholds)
        exact_answers = expected >= np.array(thresholds)
    else:
        answers = rounded.argmax(axis=1)
        exact_answers = expected.argmax(axis=1)
    if len(labels) < ENOUGH_TEXTS:
        return bool((answers == exact_answers).all())

    least = _score(exact_answers, labels) - MOST_ACCURACY_LOST
    return _score(answers, labels) >= least


def _score(answers: NDArray[Any], labels: NDArray[Any]) -> float:
    """Accuracy, or multi-label micro-F1."""
    if labels.ndim > 1:
        return ClassCounts.of(answers, labels).micro_f1
    return float((answers == labels).mean())


def fit_guarantees(
    classifier: Classifier,
    texts: TokenizedTexts,
    labels: NDArray[Any],
    *,
    earlier: Sequence[Answers] = (),
) -> None:
    """Measure the guarantees of a classifier on held-out texts, and add them to it.

    Labels beyond the classifier's classes count as mistakes, and their texts not as familiar. Multi-label tasks get no
    guarantees. `earlier` are answers of the linear part to some of the texts, from before it learned from these.
    """
    part_logits, linear_numbers = classifier.part_logits_and_numbers(texts)
    for answers in earlier:
        assert linear_numbers is not None
        part_logits["linear"][answers.rows] = answers.logits
        linear_numbers[answers.rows] = answers.numbers

    logits = classifier.combined(part_logits)
    numbers = text_numbers(classifier.task.probabilities(logits), texts, linear_numbers)

    is_familiar = has_words = np.diff(texts.offsets) > 1  # blank texts get no answer
    if labels.ndim == 1:
        is_familiar = has_words & (labels < logits.shape[1])
        if has_words.any():
            classifier.guarantees = Guarantees.of(softmax(logits[has_words]), labels[has_words])
    classifier.familiarity = Familiarity.of(numbers[is_familiar])
