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


def check_several_labels(probabilities: NDArray[np.float64], labels: NDArray[np.int8]) -> LabelCheck:
    """Which texts have labels, (texts, labels), that cleanlab takes for wrong, by their probabilities (texts, classes).

    Labels beyond the classes have no probability, and it says nothing of them.
    """
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return LabelCheck(doubtful=None, note="cleanlab is not installed (pip install 'encoder-cls[labels]')")
    known = labels[:, : probabilities.shape[1]] > 0
    occurring = np.flatnonzero(known.any(axis=0) & ~known.all(axis=0))  # it needs texts with each, and without
    if not len(occurring):
        return LabelCheck(doubtful=None, note="cleanlab needs a label that some texts have and others have not")
    has_label, given = known[:, occurring], probabilities[:, occurring]
    is_doubtful = np.zeros(len(labels), dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about labels of few texts, which it leaves alone
        for label in range(len(occurring)):  # each a question with two answers
            of_both = np.stack([1 - given[:, label], given[:, label]], axis=1)
            is_doubtful |= find_label_issues(has_label[:, label].astype(np.int64), of_both, n_jobs=1)
    return LabelCheck(doubtful=tuple(np.flatnonzero(is_doubtful).tolist()))
