"""Choose the columns beside the text that could be features, and say which had better not be."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from encoder_cls.extras.init.column_profile import ColumnProfile
from encoder_cls.system.fields import number_written


class FeatureColumns(NamedTuple):
    """The columns that could be features.

    Attributes:
        doubts: why one should be none.
    """

    names: tuple[str, ...]
    doubts: Mapping[str, str]


KINDS = ("text", "code", "number", "truth value")
# The largest number of different values of useful categories, as a share of the rows.
MAX_CATEGORY_SHARE = 0.5
# The smallest number of different values of an id, as a share of the rows.
MIN_ID_SHARE = 0.9
# The smallest accuracy of a column that says the class by itself, and the smallest share of the
# rows with other labels than the most frequent one that it gets right.
MIN_LEAK_ACCURACY = 0.95
MIN_LEAK_GAIN = 0.9
# A column has values for labelled rows only, if so many other rows should have one. There is none
# by chance once in a thousand times (exp(-7)).
MIN_EXPECTED_VALUES = 7


def feature_columns(
    profiles: Sequence[ColumnProfile], label: ColumnProfile, separator: str | None
) -> FeatureColumns:
    """Choose among columns that are neither text nor label.

    `separator` is between several labels in a cell; None for one.
    """
    labels = [_first_label(cell, separator) for cell in label.cells]
    names = []
    doubts = {}
    for profile in profiles:
        if profile.kind not in KINDS:
            continue
        doubt = _doubt(profile, labels)
        if doubt:
            doubts[profile.name] = doubt
        elif _repeats(profile):
            names.append(profile.name)
    return FeatureColumns(tuple(names), doubts)


def _first_label(cell: str | list[str] | None, separator: str | None) -> str | None:
    if isinstance(cell, str):
        return cell.split(separator)[0].strip() if separator else cell
    return cell[0] if cell else None


def _doubt(profile: ColumnProfile, labels: Sequence[str | None]) -> str:
    filled = [cell is not None for cell in profile.cells]
    filled_of_labelled = [
        is_filled for is_filled, label in zip(filled, labels, strict=True) if label
    ]
    num_unlabelled = len(labels) - len(filled_of_labelled)
    expected = num_unlabelled * sum(filled_of_labelled) / max(1, len(filled_of_labelled))
    if sum(filled) == sum(filled_of_labelled) and expected >= MIN_EXPECTED_VALUES:
        return "only rows with a label have a value, so new texts will have none"

    if _is_id(profile):
        return "nearly every row has another value, as of an id, which teaches nothing"

    accuracy, most_frequent = _accuracy_alone(profile, labels)
    gain = (accuracy - most_frequent) / (1 - most_frequent) if most_frequent < 1 else 0.0
    if accuracy >= MIN_LEAK_ACCURACY and gain >= MIN_LEAK_GAIN:
        return (
            f"it alone is right on {accuracy:.1%}; leave it out if it is filled in together with "
            "the class, since new texts will then lack it"
        )
    return ""


def _is_id(profile: ColumnProfile) -> bool:
    numbers = _numbers(profile)
    is_measured = numbers is not None and any(number % 1 for number in numbers.values())
    return profile.distinct_share >= MIN_ID_SHARE and not is_measured


def _repeats(profile: ColumnProfile) -> bool:
    """Whether there are values to learn from: different ones, each in several rows, or sizes."""
    has_empty = profile.num_filled < len(profile.cells)
    if len(profile.counts) + has_empty < 2:
        return False
    return profile.distinct_share <= MAX_CATEGORY_SHARE or _numbers(profile) is not None


def _numbers(profile: ColumnProfile) -> dict[str, float] | None:
    """The numbers of values, as a training reads them; None if one is no number."""
    numbers = {}
    for value in profile.counts:
        number = number_written(value)
        if number is None:
            return None
        numbers[value] = number
    return numbers


def _accuracy_alone(profile: ColumnProfile, labels: Sequence[str | None]) -> tuple[float, float]:
    """How often a label is the most frequent one of its value, or of the nearest number.

    Half of the rows are learned from, the others tested. The second share is of the label most
    frequent of all.
    """
    rows = []
    for cell, label in zip(profile.cells, labels, strict=True):
        if label:
            rows.append((str(cell or ""), label))
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    learned = [rows[row] for row in order[::2]]
    tested = [rows[row] for row in order[1::2]]
    if not tested:
        return 0.0, 1.0

    labels_of: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for value, label in learned:
        labels_of[value][label] += 1
    answers = {value: _most_frequent(counts) for value, counts in labels_of.items()}
    most_frequent = _most_frequent(Counter(label for _, label in learned))

    numbers = _numbers(profile) or {}
    known = sorted(
        (numbers[value], answer) for value, answer in answers.items() if value in numbers
    )
    num_right = 0
    for value, label in tested:
        answer = answers.get(value, most_frequent)
        if value in numbers and value not in answers and known:
            answer = _nearest(numbers[value], known)
        num_right += answer == label
    num_most_frequent = sum(label == most_frequent for _, label in tested)
    return num_right / len(tested), num_most_frequent / len(tested)


def _most_frequent(counts: Counter[str]) -> str:
    return counts.most_common(1)[0][0]


def _nearest(number: float, known: Sequence[tuple[float, str]]) -> str:
    place = bisect_left(known, (number, ""))
    around = known[max(0, place - 1) : place + 1]
    return min(around, key=lambda found: abs(found[0] - number))[1]
