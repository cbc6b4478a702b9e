"""Labelled sources in; `Dataset` (texts, class numbers, class names, in splits) out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from encoder_cls.columns import Column, GrowingArray, TextColumn, in_chunks
from encoder_cls.config import DataConfig
from encoder_cls.errors import DataError
from encoder_cls.sources import Place, Row, kind, read_rows, shown

SHOWN_NAMES = 8


@dataclass(frozen=True, kw_only=True)
class Split:
    """Labelled examples: `texts[i]` belongs to class number `labels[i]` and was read at `where[i]`.

    `left_out` rows of their source had no text, where that is allowed.
    """

    texts: Sequence[str]
    labels: NDArray[np.int64]
    where: Sequence[str]
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, indices: NDArray[np.int64]) -> Split:
        """The examples at these places, in this order."""
        return Split(
            texts=_selected(self.texts, indices), labels=self.labels[indices], where=_selected(self.where, indices)
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
    for chunk in in_chunks(texts):
        contents = [text.encode() for text in chunk]
        # Each after its length, since a text may hold any separator.
        digest.update(b"".join(part for it in contents for part in (len(it).to_bytes(8, "little"), it)))
    return digest.hexdigest()


def _selected(column: Sequence[str], indices: NDArray[np.int64]) -> Sequence[str]:
    return column.select(indices) if isinstance(column, Column) else [column[i] for i in indices]


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
    train_rows = _read(config.train, "train", config)
    label_names = _class_names(train_rows.classes, config)
    train = _to_split(train_rows, label_names)
    if config.validation is None:
        train, validation = hold_out(train, label_names, fraction=config.validation_fraction, seed=seed)
    else:
        validation = _to_split(_read(config.validation, "validation", config), label_names)
    test = None
    if config.test is not None:
        test = _to_split(_read(config.test, "test", config), label_names)
    return Dataset(
        label_names=label_names, train=train, validation=validation, test=test, unlabelled=_unlabelled(config)
    )


def load_split(source: str, config: DataConfig, label_names: tuple[str, ...]) -> Split:
    """Read one labelled source whose classes are known.

    Raises:
        DataError: as `load_dataset`.
    """
    return _to_split(_read(source, "test", config), label_names)


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
    kept = replace(split.subset(np.flatnonzero(~held_out)), left_out=split.left_out)
    return kept, split.subset(np.flatnonzero(held_out))


class _PlaceColumn(Column):
    """Where rows were read, each as a number for the file and one for the line."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._file_numbers = GrowingArray(np.int32)
        self._lines = GrowingArray(np.int64)
        self._rows_in_all = 0

    def append(self, places: Sequence[Place]) -> None:
        self._file_numbers.append([self._files.setdefault(place.file, len(self._files)) for place in places])
        self._lines.append([place.line for place in places])
        self._rows_in_all += len(places)

    def _count(self) -> int:
        return self._rows_in_all

    def _at(self, rows: NDArray[np.int64]) -> list[str]:
        files = list(self._files)
        numbers = zip(self._file_numbers.array()[rows].tolist(), self._lines.array()[rows].tolist(), strict=True)
        return [str(Place(files[file], line)) for file, line in numbers]


@dataclass(kw_only=True)
class _Rows:
    """The labelled rows of a source, as far as it is read.

    Attributes:
        classes: of each class name the place of its first row, in the order of these.
        numbers: of each row the place of its class in `classes`.
        left_out: rows without a text.
    """

    texts: TextColumn = field(default_factory=TextColumn)
    where: _PlaceColumn = field(default_factory=_PlaceColumn)
    classes: dict[str, Place] = field(default_factory=dict)
    numbers: GrowingArray[np.int32] = field(default_factory=lambda: GrowingArray(np.int32))
    left_out: int = 0


def _unlabelled(config: DataConfig) -> Unlabelled:
    if config.unlabelled is None:
        return Unlabelled()
    texts, where = TextColumn(), _PlaceColumn()
    rows = read_rows(config.unlabelled, role="train", text_columns=config.text_column, label_column=None)
    # An empty text says nothing, and there is no label to go with it.
    found = (row for row in rows if row.text.strip())
    for chunk in in_chunks(found):
        for row in chunk:
            _check_unicode(row)
        texts.append([row.text for row in chunk])
        where.append([row.where for row in chunk])
    if not len(texts):
        raise DataError(f"{config.unlabelled}: no rows with a text")
    return Unlabelled(texts=texts, where=where)


def _read(source: str, role: str, config: DataConfig) -> _Rows:
    rows = _Rows()
    numbers: dict[str, int] = {}
    for chunk in in_chunks(_labelled_rows(source, role, config, rows)):
        texts, names, places = zip(*chunk, strict=True)
        for name, place in zip(names, places, strict=True):
            rows.classes.setdefault(name, place)
            numbers.setdefault(name, len(numbers))
        rows.texts.append(texts)
        rows.where.append(places)
        rows.numbers.append([numbers[name] for name in names])
    if not len(rows.texts):
        raise DataError(f"{source}: no rows with a text")
    return rows


def _labelled_rows(source: str, role: str, config: DataConfig, rows: _Rows) -> Iterator[tuple[str, str, Place]]:
    """Text, class name and place of each row; those without a text are counted in `rows`."""
    first_empty = None
    for row in read_rows(source, role=role, text_columns=config.text_column, label_column=config.label_column):
        if not row.text.strip():
            first_empty = first_empty or row.where
            rows.left_out += 1
            continue
        _check_unicode(row)
        yield row.text, _named(row, config.label_names), row.where
    if first_empty and config.empty_texts == "error":
        more = f" (and {rows.left_out - 1} rows after it)" if rows.left_out > 1 else ""
        raise DataError(f"{first_empty}: the text is empty{more}; mend the file or set data.empty_texts=drop")


def _check_unicode(row: Row) -> None:
    for name, value in (("text", row.text), ("label", str(row.label))):
        try:
            if not value.isascii():
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


def _class_names(classes: Iterable[str], config: DataConfig) -> tuple[str, ...]:
    """The classes that occur, in the order of `data.label_names`, of their numbers, or of the alphabet."""
    found = set(classes)
    if len(found) < 2:
        raise DataError(
            f"{config.train}: every row has the label {shown(found.pop())}; at least two classes are needed"
        )
    if config.label_names is not None:
        return tuple(name for name in config.label_names if name in found)
    if all(re.fullmatch(r"-?[0-9]{1,19}", name) for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))  # `1` and `01` are two classes
    return tuple(sorted(found))


def _to_split(rows: _Rows, label_names: tuple[str, ...]) -> Split:
    numbers = {name: number for number, name in enumerate(label_names)}
    for name, first_place in rows.classes.items():
        if name not in numbers:
            known = ", ".join(shown(name) for name in label_names[:SHOWN_NAMES])
            more = ", …" if len(label_names) > SHOWN_NAMES else ""
            raise DataError(f"{first_place}: label {shown(name)} never occurs in train ({known}{more})")
    renumbered = np.array([numbers[name] for name in rows.classes], dtype=np.int64)
    return Split(texts=rows.texts, labels=renumbered[rows.numbers.array()], where=rows.where, left_out=rows.left_out)
