"""Notes, names and numbers as reports print them."""

from __future__ import annotations

from collections.abc import Container, Mapping

from encoder_cls.data.dataset import listed
from encoder_cls.evaluation.scores import Interval
from encoder_cls.system.display import printable, shortened

LONGEST_NAME = 28  # characters of a class name in a column


def split_note(split: str) -> str:
    """What is to be known of a split, if anything."""
    if split != "validation":
        return ""
    return "these texts also chose the weights and calibrated them: expect somewhat less of new ones (data.test)"


def length_note(parts: Container[str], truncated_fraction: float) -> str:
    """Which part of the texts is longer than what is read of them, where these parts of a classifier read."""
    reader = "encoder" if "encoder" in parts else "linear model"
    return f"texts longer than the {reader} reads {truncated_fraction:.1%}"


def refit_note(num_texts: int, split: str) -> str:
    """That the linear classifier has learned from so many texts held out for validation, if it has."""
    if not num_texts:
        return ""
    before = "; scores here are by what it said of them before" if split == "validation" else ""
    texts = "the text" if num_texts == 1 else f"the {num_texts:,} texts"
    return f"the linear model has in the end also learned from {texts} held out for validation{before}"


def reference_note(reference: Mapping[str, float] | None) -> str:
    """On how many of the training texts and their features the linear model was trained, where not on all."""
    if reference is None:
        return ""
    parts = [
        f"{reference[what]:,} of {reference[f'of_{what}']:,} {what}"
        for what in ("texts", "features")
        if reference[what] < reference[f"of_{what}"]
    ]
    return f", trained on {' and '.join(parts)}" if parts else ""


def unseen_note(counts: Mapping[str, int]) -> str:
    """What is to be known of labels that never occur in the training data, if there are any, with their texts."""
    if not counts:
        return ""
    number = sum(counts.values())
    have = "1 text has a label that never occurs" if number == 1 else f"{number:,} texts have labels that never occur"
    return (
        f"{have} in the training data "
        f"({listed(list(counts))}): they count as mistakes, and are left out of the loss and the calibration error"
    )


def interval_text(interval: Interval) -> str:
    """An interval of fractions in brackets."""
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def name_text(name: str, *, limit: int = 80) -> str:
    """A class name, short and on one line."""
    return printable(shortened(name, limit=limit))
