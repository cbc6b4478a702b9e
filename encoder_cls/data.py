"""Labelled sources in; `Dataset` (texts, class numbers, class names, in splits) out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encoder_cls.config import DataConfig
from encoder_cls.errors import DataError
from encoder_cls.sources import Row, kind, read_rows, shown

SHOWN_NAMES = 8


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled examples: `texts[i]` belongs to class number `labels[i]` and was read at `where[i]`."""

    texts: Sequence[str]
    labels: NDArray[np.int64]
    where: Sequence[str]

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, indices: NDArray[np.int64]) -> Split:
        """The examples at these places, in this order."""
        return Split(
            texts=[self.texts[i] for i in indices],
            labels=self.labels[indices],
            where=[self.where[i] for i in indices],
        )

    def fingerprint(self) -> str:
        """A SHA-256 of all texts and labels in order: equal data, equal fingerprint."""
        return _fingerprint(self.texts, self.labels.tobytes())


@dataclass(frozen=True, kw_only=True)
class Unlabelled:
    """Texts whose classes nobody knows: `texts[i]` was read at `where[i]`."""

    texts: Sequence[str] = ()
    where: Sequence[str] = ()

    def fingerprint(self) -> str:
        """As that of a split."""
        return _fingerprint(self.texts)


def _fingerprint(texts: Iterable[str], before: bytes = b"") -> str:
    digest = hashlib.sha256(before)
    for text in texts:
        content = text.encode()
        digest.update(len(content).to_bytes(8, "little"))  # a text may hold any separator
        digest.update(content)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The splits of one classification task; class number `c` is called `label_names[c]`.

    `unlabelled` are further texts of the kind, none where none are named.
    """

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None
    unlabelled: Unlabelled = Unlabelled()

    @property
    def reported(self) -> tuple[str, Split]:
        """Name and examples of the split that a final report is on: test, else validation."""
        return ("test", self.test) if self.test else ("validation", self.validation)


def load_dataset(config: DataConfig, *, seed: int) -> Dataset:
    """Read all splits that the config names, and hold out a validation split where none is named.

    Raises:
        DataError: a source is missing or malformed, has fewer than two classes, or a validation or
            test label never occurs in train.
    """
    train_rows = _labelled_rows(config.train, "train", config)
    label_names = _class_names(train_rows, config)
    train = _to_split(train_rows, label_names)
    if config.validation is None:
        train, validation = hold_out(train, label_names, fraction=config.validation_fraction, seed=seed)
    else:
        validation = _to_split(_labelled_rows(config.validation, "validation", config), label_names)
    test = None
    if config.test is not None:
        test = _to_split(_labelled_rows(config.test, "test", config), label_names)
    return Dataset(
        label_names=label_names, train=train, validation=validation, test=test, unlabelled=_unlabelled(config)
    )


def load_split(source: str, config: DataConfig, label_names: tuple[str, ...]) -> Split:
    """Read one labelled source whose classes are known.

    Raises:
        DataError: as `load_dataset`.
    """
    return _to_split(_labelled_rows(source, "test", config), label_names)


def hold_out(split: Split, label_names: Sequence[str], *, fraction: float, seed: int) -> tuple[Split, Split]:
    """Divide a split in two, the second part holding about `fraction` of each class and one at least.

    Raises:
        DataError: a class has a single example, which cannot be on both sides.
    """
    random = np.random.default_rng(seed)
    held_out = np.zeros(len(split), dtype=bool)
    for label, name in enumerate(label_names):
        members = random.permutation(np.flatnonzero(split.labels == label))
        if len(members) == 1:
            raise DataError(
                f"{split.where[members[0]]}: class {shown(name)} has only this example, so none is left to validate "
                "with; add examples, or name a file in data.validation"
            )
        held_out[members[: max(1, round(fraction * len(members)))]] = True
    return split.subset(np.flatnonzero(~held_out)), split.subset(np.flatnonzero(held_out))


def _unlabelled(config: DataConfig) -> Unlabelled:
    if config.unlabelled is None:
        return Unlabelled()
    rows = [
        row
        for row in read_rows(config.unlabelled, role="train", text_columns=config.text_column, label_column=None)
        if row.text.strip()  # an empty text says nothing, and there is no label to go with it
    ]
    for row in rows:
        _check_unicode(row)
    if not rows:
        raise DataError(f"{config.unlabelled}: no rows with a text")
    return Unlabelled(texts=[row.text for row in rows], where=[row.where for row in rows])


def _labelled_rows(source: str, role: str, config: DataConfig) -> list[Row]:
    rows, dropped = [], 0
    first_empty = None
    reader = read_rows(source, role=role, text_columns=config.text_column, label_column=config.label_column)
    for row in reader:
        if not row.text.strip():
            first_empty, dropped = first_empty or row.where, dropped + 1
            continue
        _check_unicode(row)
        rows.append(row._replace(label=_named(row, config.label_names)))
    if first_empty and config.empty_texts == "error":
        more = f" (and {dropped - 1} rows after it)" if dropped > 1 else ""
        raise DataError(f"{first_empty}: the text is empty{more}; mend the file or set data.empty_texts=drop")
    if not rows:
        raise DataError(f"{source}: no rows with a text")
    return rows


def _check_unicode(row: Row) -> None:
    for name, value in (("text", row.text), ("label", str(row.label))):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{row.where}: the {name} holds half of a surrogate pair at character {error.start}"
            ) from None


def _named(row: Row, names: Sequence[str] | None) -> str:
    """The class name of a row's label."""
    label = row.label
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise DataError(f"{row.where}: the label is {kind(label)}; a name or an integer is expected")
    if names is not None and (isinstance(label, int) or re.fullmatch(r"[0-9]{1,9}", label)) and str(label) not in names:
        if not 0 <= int(label) < len(names):
            raise DataError(f"{row.where}: label {label} has no name; data.label_names holds {len(names)} names")
        return names[int(label)]
    name = str(label)
    if not name.strip():
        raise DataError(f"{row.where}: the label is empty")
    if names is not None and name not in names:
        raise DataError(f"{row.where}: label {shown(name)} is not in data.label_names")
    return name


def _class_names(rows: Sequence[Row], config: DataConfig) -> tuple[str, ...]:
    """The classes that occur, in the order of `data.label_names`, of their numbers, or of the alphabet."""
    found = {str(row.label) for row in rows}
    if len(found) < 2:
        raise DataError(
            f"{config.train}: every row has the label {shown(found.pop())}; at least two classes are needed"
        )
    if config.label_names is not None:
        return tuple(name for name in config.label_names if name in found)
    if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))  # `1` and `01` are two classes
    return tuple(sorted(found))


def _to_split(rows: Sequence[Row], label_names: tuple[str, ...]) -> Split:
    numbers = {name: number for number, name in enumerate(label_names)}
    for row in rows:
        if row.label not in numbers:
            known = ", ".join(shown(name) for name in label_names[:SHOWN_NAMES])
            more = ", …" if len(label_names) > SHOWN_NAMES else ""
            raise DataError(f"{row.where}: label {shown(str(row.label))} never occurs in train ({known}{more})")
    return Split(
        texts=[row.text for row in rows],
        labels=np.array([numbers[str(row.label)] for row in rows], dtype=np.int64),
        where=[row.where for row in rows],
    )
