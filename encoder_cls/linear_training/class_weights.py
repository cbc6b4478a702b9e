"""How much a text of each class counts in a fit (`train.class_weights`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import ClassWeights
from encoder_cls.data.dataset import Dataset
from encoder_cls.metrics.tasks import SINGLE_LABEL, task_of


def class_weights(setting: ClassWeights, dataset: Dataset) -> NDArray[np.float32]:
    """The weight of each class in the loss, (classes,).

    Multi-label, it applies to the texts with the label; the others have the weight 1.
    """
    label_names = dataset.label_names
    if setting == "none":
        return np.ones(len(label_names), dtype=np.float32)
    if setting != "balanced":
        return np.array([setting.get(name, 1.0) for name in label_names], dtype=np.float32)

    sizes = dataset.train.class_counts(len(label_names))
    if task_of(dataset.train.labels) is SINGLE_LABEL:
        return balanced_weights(sizes)
    sizes_without = len(dataset.train) - sizes
    weights: NDArray[np.float64] = np.maximum(1, sizes_without) / sizes
    return weights.astype(np.float32)


def balanced_weights(sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """The weights with which classes of these sizes in texts count alike."""
    weights: NDArray[np.float32] = (sizes.sum() / (len(sizes) * sizes)).astype(np.float32)
    return weights
