"""Probabilities and labels in, which labels are doubtful out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class LabelCheck:
    """What cleanlab says of labels.

    Attributes:
        doubtful: the indices of the texts whose label it takes for wrong; none where it cannot tell.
        note: why it cannot; empty where it can.
    """

    doubtful: tuple[int, ...] | None
    note: str = ""


def check_labels(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> LabelCheck:
    """Which labels (texts,) cleanlab takes for wrong, by the probabilities (texts, classes) that the classifier gives.

    A label beyond the classes has no probability, and it says nothing of it.

    Northcutt et al., "Confident Learning: Estimating Uncertainty in Dataset Labels" (2021), https://arxiv.org/abs/1911.00068.
    """
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return LabelCheck(doubtful=None, note="cleanlab is not installed (pip install 'encoder-cls[labels]')")
    is_known = labels < probabilities.shape[1]
    occurring = np.unique(labels[is_known])
    if len(occurring) < 2:
        return LabelCheck(doubtful=None, note="cleanlab needs texts of two classes")
    given = probabilities[np.ix_(is_known, occurring)]  # it needs each class to occur
    given /= np.maximum(given.sum(axis=1, keepdims=True), 1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes of few texts, which it leaves alone
        is_doubtful = find_label_issues(np.searchsorted(occurring, labels[is_known]), given, n_jobs=1)
    return LabelCheck(doubtful=tuple(np.flatnonzero(is_known)[is_doubtful].tolist()))
