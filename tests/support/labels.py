"""Margins of four labels, and the labels that texts have according to them."""

from __future__ import annotations

import numpy as np

from encoder_cls.metrics.logits import sigmoid

# From margins to log odds; the third label differs from the others.
SCALES = np.array([2.0, 2.0, 0.5, 2.0])
SHIFTS = np.array([-1.0, -1.0, 0.0, -1.0])


def margins_and_labels(num_texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Margins, and labels that are as probable as `SCALES` and `SHIFTS` say, (texts, 4)."""
    random = np.random.default_rng(0)
    margins = random.normal(-0.5, 1, size=(num_texts, len(SCALES))).astype(np.float32)
    has_label = random.random(margins.shape) < sigmoid(margins * SCALES + SHIFTS)
    return margins, has_label.astype(np.int8)
