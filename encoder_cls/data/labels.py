"""Decide the class names of a data set from its labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from encoder_cls.data.rows import SourceLocation
from encoder_cls.errors import DataError
from encoder_cls.system.display import shown

LabelsAre = Literal["names", "indices"]  # into data.label_names

FORMER = SourceLocation("data.corrections")  # of labels that no row has any more
_NUMBER = re.compile(r"[0-9]{1,9}")  # what is longer is a name


def what_labels_are(found: Mapping[str, SourceLocation], names: Sequence[str] | None) -> LabelsAre:
    """Decide whether all labels are names, or all are indices into the names.

    Args:
        found: the labels of all splits, an integer as its digits, each with where it is first.
        names: `data.label_names`, if given.

    Raises:
        DataError: they can be both, which would give other classes, or they are neither.
    """
    if names is None:
        return "names"
    are_names = all(label in names for label in found)
    are_indices = all(_NUMBER.fullmatch(label) and int(label) < len(names) for label in found)
    if are_names and are_indices:
        _check_one_meaning(found, names)
    if are_names or are_indices:
        return "names" if are_names else "indices"
    first = next(iter(found))
    nearest: LabelsAre = "indices" if _NUMBER.fullmatch(first) and first not in names else "names"
    for label, where in found.items():
        class_name(label, where, names, nearest)
    raise AssertionError("each label fits")


def class_name(label: str, where: SourceLocation, names: Sequence[str] | None, labels_are: LabelsAre) -> str:
    """The name of a label's class.

    Raises:
        DataError: it has none.
    """
    if names is None:
        return label
    is_number = bool(_NUMBER.fullmatch(label))
    if labels_are == "indices" and is_number:
        if int(label) >= len(names):
            raise DataError(f"{where}: label {label} has no name; data.label_names holds {len(names)} names")
        return names[int(label)]
    if labels_are == "names" and label in names:
        return label
    both = "; labels are either all names, or all numbers from 0 on"
    if label in names:
        raise DataError(f"{where}: label {shown(label)} is a name where others are numbers{both}")
    raise DataError(f"{where}: label {shown(label)} is not in data.label_names{both if is_number else ''}")


def in_order(found: set[str], names: Sequence[str] | None) -> tuple[str, ...]:
    """Class names in the order of `data.label_names`, of their numbers, or of the alphabet."""
    if names is not None:
        return tuple(name for name in names if name in found)
    if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))  # `1` and `01` are two classes
    return tuple(sorted(found))


def _check_one_meaning(found: Mapping[str, SourceLocation], names: Sequence[str]) -> None:
    if any(label != str(int(label)) for label in found):
        return  # nobody writes an index as 01
    for label, where in found.items():
        meant = names[int(label)]
        if meant != label:
            raise DataError(
                f"{where}: label {label} may be the name {shown(label)} or the number of {shown(meant)} in "
                "data.label_names; if labels are names, set data.label_names=null; if they are numbers, give it other "
                f"names, such as {shown('class ' + label)}"
            )


def names_as_texts(names: Sequence[str]) -> list[str]:
    """Of each class the words of its name; nothing where it has no letter, as a number has none."""
    return [_words(name) if any(map(str.isalpha, name)) else "" for name in names]


def _words(name: str) -> str:
    """Words end at what is no letter or digit, at an underscore, and before a capital after a small letter."""
    ends = [one.islower() and two.isupper() for one, two in pairwise(name)]
    spaced = "".join(
        f"{character} " if is_end else character for character, is_end in zip(name, [*ends, False], strict=True)
    )
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())
