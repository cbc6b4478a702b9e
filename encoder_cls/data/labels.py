"""Decide the class names of a data set from its labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from encoder_cls.errors import DataError
from encoder_cls.system.display import shown

LabelsAre = Literal["names", "indices"]  # into data.label_names

_NUMBER = re.compile(r"[0-9]{1,9}")  # what is longer is a name


def what_labels_are(found: Mapping[str, str], names: Sequence[str] | None) -> LabelsAre:
    """Decide whether all labels are names, or all are indices into the names.

    Args:
        found: the first location of each label of all splits, an integer as its digits.
        names: `data.label_names`, if given.

    Raises:
        DataError: they can be both, which would give other classes, or they are neither.
    """
    if names is None:
        return "names"
    are_names = all(label in names for label in found)
    are_indices = all(_NUMBER.fullmatch(label) and int(label) < len(names) for label in found)
    if are_names and are_indices and all(label == str(int(label)) for label in found):  # nobody writes an index as 01
        _check_one_meaning(found, names)
    if are_names or are_indices:
        return "names" if are_names else "indices"
    first = next(iter(found))
    nearest: LabelsAre = "indices" if _NUMBER.fullmatch(first) and first not in names else "names"
    for label, where in found.items():
        class_name(label, where, names, nearest)
    raise AssertionError("each label fits")


def class_name(label: str, where: str, names: Sequence[str] | None, labels_are: LabelsAre) -> str:
    """The name of the class of a label; a DataError with its location if it has none."""
    if names is None:
        return label
    is_number = bool(_NUMBER.fullmatch(label))
    if labels_are == "indices" and is_number:
        if int(label) >= len(names):
            raise DataError(where, f"label {label} has no name", f"data.label_names holds {len(names)} names")
        return names[int(label)]
    if labels_are == "names" and label in names:
        return label
    both = "labels are either all names, or all numbers from 0 on"
    if label in names:
        raise DataError(where, f"label {shown(label)} is a name where others are numbers", both)
    raise DataError(where, f"label {shown(label)} is not in data.label_names", both if is_number else "")


def in_order(found: set[str], names: Sequence[str] | None) -> tuple[str, ...]:
    """Sort class names as in `data.label_names`, or else by number if all are numbers, or by alphabet."""
    if names is not None:
        return tuple(name for name in names if name in found)
    if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))  # `1` and `01` are two classes
    return tuple(sorted(found))


@dataclass(frozen=True)
class Classes:
    """How labels become classes."""

    names: Sequence[str] | None  # data.label_names
    labels_are: LabelsAre

    def of(self, labels: Mapping[str | int, str]) -> list[str]:
        """The class of each label, given with its location."""
        return [self.name(str(label), where) for label, where in labels.items()]

    def name(self, label: str, where: str) -> str:
        """The class of a label."""
        return class_name(label, where, self.names, self.labels_are)

    def in_order(self, found: Iterable[str]) -> tuple[str, ...]:
        """Classes, sorted."""
        return in_order(set(found), self.names)


def _check_one_meaning(found: Mapping[str, str], names: Sequence[str]) -> None:
    for label, where in found.items():
        meant = names[int(label)]
        if meant != label:
            raise DataError(
                where,
                f"label {label} may be the name {shown(label)} or the number of {shown(meant)} in data.label_names",
                "if labels are names, set data.label_names=null; if they are numbers, give it other names, such as "
                f"{shown('class ' + label)}",
            )


def names_as_texts(names: Sequence[str]) -> list[str]:
    """The words of the name of each class; empty where it has no letter, as in a number."""
    return [_words(name) if any(map(str.isalpha, name)) else "" for name in names]


def _words(name: str) -> str:
    """Split at characters other than letters and digits, and before a capital after a small letter."""
    starts = [False, *(one.islower() and two.isupper() for one, two in pairwise(name))]
    spaced = "".join(f" {letter}" if is_start else letter for letter, is_start in zip(name, starts, strict=True))
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())
