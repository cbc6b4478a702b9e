"""Margins and logits, and the labels that texts have according to them."""

from __future__ import annotations

import numpy as np
import scipy.special

from encoder_cls.metrics.logits import sigmoid

# From margins of four labels to log odds; the third label differs from the others.
SCALES = np.array([2.0, 2.0, 0.5, 2.0])
SHIFTS = np.array([-1.0, -1.0, 0.0, -1.0])


def margins_and_labels(num_texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Margins, and labels that are as probable as `SCALES` and `SHIFTS` say, (texts, 4)."""
    random = np.random.default_rng(0)
    margins = random.normal(-0.5, 1, size=(num_texts, len(SCALES))).astype(np.float32)

    probabilities = sigmoid(margins * SCALES + SHIFTS)
    has_label = random.random(margins.shape) < probabilities
    return margins, has_label.astype(np.int8)


def logits_and_labels(
    temperature: float, *, num_texts: int = 20_000, num_classes: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn from their softmax at a temperature."""
    random = np.random.default_rng(0)
    logits = (3 * random.standard_normal((num_texts, num_classes))).astype(np.float32)

    probabilities = scipy.special.softmax(logits.astype(np.float64) / temperature, axis=1)
    return logits, draw_classes(probabilities, random)


def draw_classes(probabilities: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draw a class for each text: the number of upper bounds that are below a random number."""
    upper_bounds = probabilities.cumsum(axis=1)[:, :-1]
    drawn = random.random((len(probabilities), 1))
    return (drawn > upper_bounds).sum(axis=1)
