"""Decide which class each label of the sources belongs to."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config.schema import DataConfig
from encoder_cls.data.dataset import LabelsAre, renumbered
from encoder_cls.data.labelled_rows import LabelledRows
from encoder_cls.data.reading.locations import SourceLocation
from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.display import shown
from encoder_cls.system.json_values import WHOLE_NUMBER, json_text
from encoder_cls.system.label_cells import label_key

# An index into `data.label_names`. A longer number is a name.
_INDEX = re.compile(r"[0-9]{1,9}")
# A name that is sorted by its value as a number.
_SORTED_AS_NUMBER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True)
class Classes:
    """All classes of the data, and the class of each label.

    Attributes:
        names: the value of `data.label_names`.
        of_labels: the name of the class of each label.
        every: all classes in order, by which labels of rows are numbered.
        not_in_data: labels of `data.label_map` that no row has.
    """

    names: Sequence[str] | None
    labels_are: LabelsAre
    of_labels: Mapping[str, str]
    every: Sequence[str]
    not_in_data: Sequence[str]

    def present(self, numbers: NDArray[np.integer[Any]]) -> tuple[str, ...]:
        """The classes that occur among class numbers, in order."""
        return in_order((self.every[number] for number in np.unique(numbers)), self.names)

    def numbered(self, rows: LabelledRows) -> LabelledRows:
        """Number the labels of rows as indices into `every`."""
        class_names = [self.of_labels[label] for label in rows.labels]
        return replace(rows, numbers=renumbered(rows.numbers, class_names, self.every))


def decide_classes(
    all_rows: Iterable[LabelledRows],
    config: DataConfig,
    known: Sequence[str] = (),
    labels_are: LabelsAre | None = None,
    *,
    as_written: Sequence[str] = (),
) -> Classes:
    """Decide the class of each label; the rows of train come first.

    Args:
        known: the classes that are known already, such as those of a base run.
        labels_are: None if the labels are to decide.
        as_written: labels of rows in memory, in which 1.0 and 1 are two texts.

    Raises:
        ConfigError: `data.fold_labels` makes one class of two names that are known or named.
        DataError: a label has no class, or may be a name and an index of different classes.
    """
    rows_of_sources = list(all_rows)
    names = config.label_names
    spelling = _spelling(rows_of_sources, config, known, as_written)
    mapped = _mapped(spelling, config)

    # The first location of each label, as it is mapped.
    locations: dict[str, SourceLocation] = {}
    for rows in rows_of_sources:
        for label, where in rows.labels.items():
            locations.setdefault(mapped[label], where)

    if labels_are is None:
        labels_are = _names_or_indices(locations, names)
    classes = {}
    for label, where in locations.items():
        classes[label] = _class_of(label, where, names, labels_are)

    return Classes(
        names=names,
        labels_are=labels_are,
        of_labels={label: classes[name] for label, name in mapped.items()},
        every=in_order((*(names or ()), *classes.values()), names),
        not_in_data=_not_in_data(spelling, config),
    )


def in_order(classes: Iterable[str], names: Sequence[str] | None) -> tuple[str, ...]:
    """Sort classes, without repetitions, in the order of `names`.

    Without names, it is that of their values if all are numbers, and else that of their characters.
    """
    distinct = set(classes)
    if names is not None:
        return tuple(name for name in names if name in distinct)
    if all(_SORTED_AS_NUMBER.fullmatch(name) for name in distinct):
        # Sort by the name, too: `1` and `01` are two classes with the same value.
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))


def _names_to_list(all_rows: Iterable[LabelledRows], config: DataConfig) -> tuple[str, ...]:
    classes = decide_classes(all_rows, config)
    return in_order(map(str.strip, classes.every), classes.names)


def hint_for_empty_labels(
    all_rows: Mapping[str, LabelledRows], config: DataConfig, *, is_multi_label: bool = False
) -> str:
    """Suggest how to use or skip rows of train without a label."""
    skip = "data.bad_rows=skip leaves such rows out"
    if is_multi_label:
        return f"write [] where a text has none of the labels; {skip}"

    names = _names_to_list(all_rows.values(), config)
    setting = f"data.label_names=[{', '.join(map(json_text, names))}]"
    return f"to use such rows as texts without labels, add --set {shlex.quote(setting)}; {skip}"


# The spelling of labels


def _spelling(
    rows_of_sources: Sequence[LabelledRows],
    config: DataConfig,
    known: Sequence[str],
    as_written: Sequence[str],
) -> dict[str, str]:
    names = config.label_names or ()
    labels = list(dict.fromkeys(label for rows in rows_of_sources for label in rows.labels))

    named = {*names, *known, *as_written}
    classes_are_numbers = _classes_are_numbers(rows_of_sources, named)
    spelled_by_key = {}
    if config.fold_labels:
        spelled_by_key = _spelling_by_key(rows_of_sources, names, known)

    spelling = {}
    for label in labels:
        if classes_are_numbers and WHOLE_NUMBER.fullmatch(label):
            spelling[label] = label.partition(".")[0]
        elif config.fold_labels:
            spelling[label] = spelled_by_key[label_key(label)]
        elif names and label not in names:
            spelling[label] = label.strip()
        else:
            spelling[label] = label
    return spelling


def _classes_are_numbers(rows_of_sources: Sequence[LabelledRows], named: set[str]) -> bool:
    """Whether a label such as 1.0 is the class 1.

    Programs write integers with an empty cell as 1.0 in CSV, but as 1 in JSON lines and Excel. So
    it is if the named classes, or the first source's labels, are whole numbers.
    """
    if any(WHOLE_NUMBER.fullmatch(name) and "." in name for name in named):
        return False
    if named and all(WHOLE_NUMBER.fullmatch(name) for name in named):
        return True
    return all(WHOLE_NUMBER.fullmatch(label) for label in rows_of_sources[0].labels)


def _spelling_by_key(
    rows_of_sources: Sequence[LabelledRows], names: Sequence[str], known: Sequence[str]
) -> dict[str, str]:
    """Choose the name of each class of labels with one `label_key`.

    The base run comes first, then `data.label_names`, then the most frequent spelling in train.
    """
    spelled: dict[str, str] = {}
    for name in (*known, *names):
        other = spelled.setdefault(label_key(name), name)
        if other != name:
            where = "data.label_names" if name in names else "the run"
            what = f"makes one class of {other!a} and {name!a}, which are two in {where}"
            raise ConfigError(f"data.fold_labels=true {what}")

    for rows in rows_of_sources:
        counts: Counter[str] = Counter()
        for label, count in zip(rows.labels, np.bincount(rows.numbers).tolist(), strict=True):
            counts[label.strip()] += count
        for label, _ in counts.most_common():
            spelled.setdefault(label_key(label), label)
    return spelled


# The classes of data.label_map


def _mapped(spelling: Mapping[str, str], config: DataConfig) -> dict[str, str]:
    class_by_key = {}
    for label, class_name in (config.label_map or {}).items():
        class_by_key[_map_key(label, config)] = class_name
    if not class_by_key:
        return dict(spelling)

    # The first spelling of each key.
    spelled_by_key: dict[str, str] = {}
    for spelled in spelling.values():
        spelled_by_key.setdefault(_map_key(spelled, config), spelled)
    spellings = set(spelling.values())

    mapped = {}
    for label, spelled in spelling.items():
        # The map may have a number as the data has it, 1.0, or as it is spelled, 1.
        name = class_by_key.get(_map_key(label, config))
        if name is None:
            name = class_by_key.get(_map_key(spelled, config))

        if name is None:
            mapped[label] = spelled
        elif name in spellings:
            mapped[label] = name
        else:
            # Labels that are not mapped may spell the class in another way.
            mapped[label] = spelled_by_key.get(_map_key(name, config), name)
    return mapped


def _not_in_data(spelling: Mapping[str, str], config: DataConfig) -> list[str]:
    keys_in_data = set()
    for label, spelled in spelling.items():
        keys_in_data.add(_map_key(label, config))
        keys_in_data.add(_map_key(spelled, config))
    labels = config.label_map or ()
    return [label for label in labels if _map_key(label, config) not in keys_in_data]


def _map_key(label: str, config: DataConfig) -> str:
    if config.fold_labels:
        return label_key(label)
    return label.strip()


# Names or indices


def _names_or_indices(
    locations: Mapping[str, SourceLocation], names: Sequence[str] | None
) -> LabelsAre:
    if names is None:
        return "names"

    are_names = all(label in names for label in locations)
    are_indices = all(_INDEX.fullmatch(label) and int(label) < len(names) for label in locations)
    if are_names and are_indices:
        _check_one_meaning(locations, names)
    if are_names:
        return "names"
    if are_indices:
        return "indices"

    # The labels are mixed. If no name is a number, `_class_of` reads each label as what it is.
    # Otherwise decide by the first label, and `_class_of` refuses the others.
    first = next(iter(locations))
    if _INDEX.fullmatch(first) and first not in names:
        return "indices"
    return "names"


def _check_one_meaning(locations: Mapping[str, SourceLocation], names: Sequence[str]) -> None:
    # Labels such as 01 can only be names, since no program writes an index with a zero in front.
    if not all(label == str(int(label)) for label in locations):
        return
    for label, where in locations.items():
        meant = names[int(label)]
        if meant != label:
            what = (
                f"label {label} may be the name {shown(label)} or the number of {shown(meant)} in "
                "data.label_names"
            )
            example = shown(f"class {label}")
            hint = f"if names, set data.label_names=null; if numbers, give names such as {example}"
            raise DataError(where, what, hint)


def _class_of(
    label: str, where: SourceLocation, names: Sequence[str] | None, labels_are: LabelsAre
) -> str:
    if names is None or (labels_are == "names" and label in names):
        return label

    is_number = bool(_INDEX.fullmatch(label))
    may_be_mixed = not any(_INDEX.fullmatch(name) for name in names)
    if may_be_mixed and label in names:
        return label
    if is_number and (labels_are == "indices" or may_be_mixed):
        if int(label) < len(names):
            return names[int(label)]
        hint = f"data.label_names holds {len(names)} names"
        raise DataError(where, f"label {label} has no name", hint)

    both = "labels are either all names, or all numbers from 0 on"
    if label in names:
        raise DataError(where, f"label {shown(label)} is a name where others are numbers", both)
    hint = ""
    if is_number:
        hint = both
    elif label == "-1":
        hint = 'if it means "no label", leave the label empty, which is possible in train only'
    raise DataError(where, f"label {shown(label)} is not in data.label_names", hint)
