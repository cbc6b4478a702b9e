"""The best weights of a run in; the same in the smallest data type that changes no answer out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from encoder_cls.inference.classifier import Classifier
from encoder_cls.inference.linear import LinearClassifier
from encoder_cls.inference.logits import softmax
from encoder_cls.inference.serialization import load_classifier, save_classifier
from encoder_cls.inference.torch_engine import TorchEncoder
from encoder_cls.inference.weights_file import Weight, pack, unpack
from encoder_cls.text.token_arrays import TokenizedTexts

SMALL_DTYPES = ("int8", "float16")  # the smaller first
MOST_CHANGE = 0.005  # of any probability
MOST_ACCURACY_LOST = 0.001  # where there are so many texts that this is one of them at least:
ENOUGH_TEXTS = 1000  # with fewer, no answer may change


def compact(
    folder: Path,
    texts: TokenizedTexts,
    labels: NDArray[np.int64],
    *,
    device: str,
    after_batch: Callable[[], None],
) -> str:
    """Save the classifier of a model folder in the smallest type that keeps its answers; returns the type.

    Args:
        folder: in which it is saved in float32.
        texts: validation texts, on which the answers are compared.
        labels: their classes, (texts,).
        device: where to compute.
        after_batch: called after each batch; what it raises ends the work, and the folder stays as it was.
    """
    exact = load_classifier(folder, device=device, engine="torch")
    if exact.dtype != "float32":  # a run that was stopped after this, and goes on
        return exact.dtype
    expected = softmax(exact.logits(texts, after_batch=after_batch))
    for dtype in SMALL_DTYPES:
        found = softmax(_rounded(exact, dtype, device=device).logits(texts, after_batch=after_batch))
        if is_close(found, expected, labels):
            save_classifier(exact, folder, dtype=dtype)
            return dtype
    return "float32"


def is_close(found: NDArray[np.float64], expected: NDArray[np.float64], labels: NDArray[np.int64]) -> bool:
    """Whether probabilities, (texts, classes), are as good as others."""
    if not np.isfinite(found).all() or np.abs(found - expected).max(initial=0) > MOST_CHANGE:
        return False
    answers, exact_answers = found.argmax(axis=1), expected.argmax(axis=1)
    if len(labels) < ENOUGH_TEXTS:
        return bool((answers == exact_answers).all())
    return bool((answers == labels).mean() >= (exact_answers == labels).mean() - MOST_ACCURACY_LOST)


def _rounded(classifier: Classifier, dtype: str, *, device: str) -> Classifier:
    """A classifier as it is read once it has been saved in a type."""
    encoder, linear = classifier.encoder, classifier.linear
    rounded_encoder, rounded_linear = None, None
    if encoder:
        weights = _round_trip(dict(encoder.weights()), dtype)
        rounded_encoder = TorchEncoder.from_weights(encoder.architecture, weights, device=device, precision="float32")
    if linear:
        arrays = {f"linear.{name}": value for name, value in vars(linear).items() if name != "max_tokens"}
        found = _round_trip(arrays, dtype)
        fields = {name.removeprefix("linear."): value for name, value in found.items()}
        rounded_linear = LinearClassifier(max_tokens=linear.max_tokens, **fields)  # type: ignore[arg-type]
    return Classifier(
        rounded_encoder,
        classifier.tokenizer,
        classifier.label_names,
        max_seq_len=classifier.max_seq_len,
        linear=rounded_linear,
        mixture_weights=classifier.mixture_weights,
    )


def _round_trip(weights: dict[str, Weight], dtype: str) -> dict[str, Weight]:
    return unpack(pack(weights, dtype), {name: weight.shape for name, weight in weights.items()}, dtype)
