"""The pool: the texts that may be labelled, in an order drawn at random."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from encoder_cls import (
    Columns,
    Reading,
    ReadingOptions,
    Row,
    csv_form,
    drawn_rank,
    key_of_text,
    read_rows,
    texts_alike,
)
from encoder_cls.errors import NoRowsError
from encoder_cls.system.csv_cells import CsvForm, cell
from encoder_cls.system.display import counted, shown
from encoder_cls.system.files import fitting_paths, path_of
from encoder_cls.system.row_text import plain_text

# The maximum number of texts in memory. A larger pool is sampled: nobody labels as many texts.
MAX_TEXTS = 50_000


class PoolOptions(NamedTuple):
    """The pool, a file, a folder or a pattern of files, and how it is read."""

    source: str
    text_columns: Sequence[str] = ("text",)
    features: Sequence[str] = ()
    reading: ReadingOptions = ReadingOptions()


class PoolText(NamedTuple):
    """A text; `cells` are the values of all columns."""

    key: str
    text: str
    cells: Mapping[str, str]


@dataclass(frozen=True)
class Pool:
    """The texts that may be labelled.

    Attributes:
        texts: distinct, in a random order that depends only on the texts: a pool that was sorted or
            extended keeps it.
        form: of the first file.
    """

    texts: Sequence[PoolText]
    columns: Sequence[str]
    form: CsvForm
    notes: Sequence[str]


def read_pool(
    options: PoolOptions, *, label_column: str | None = None, left_out: Sequence[Path] = ()
) -> Pool:
    """Read a pool without rows that have a label in `label_column`.

    Files that are `left_out` do not belong to it, though a pattern may match them.

    Raises:
        DataError: the pool is missing or malformed, or has no text.
    """
    notes: list[str] = []
    reading = Reading(options.reading, notify=notes.append)
    sources = _without_files(options.source, left_out)

    # The names of the columns, in the order in which they occur.
    columns: dict[str, None] = {}
    num_labelled = 0

    def unlabelled_rows() -> Iterator[Row]:
        nonlocal num_labelled
        all_columns = Columns(options.text_columns, every=True, features=options.features)
        for row in chain.from_iterable(read_rows(name, all_columns, reading) for name in sources):
            columns.update(dict.fromkeys(row.record or ()))
            if label_column is not None and has_label(row, label_column):
                num_labelled += 1
            else:
                yield row

    texts = _drawn_texts(unlabelled_rows())
    if label_column is not None and num_labelled:
        with_label = f"{counted(num_labelled, 'row')} with a label in column {shown(label_column)}"
        if not texts:
            raise NoRowsError(f"{options.source}: has no texts to label, only {with_label}")
        notes.append(f"{options.source}: {with_label} left out")
    if not texts:
        raise NoRowsError(f"{options.source}: has no texts to label")
    notes += [f"warning: {warning}" for warning in reading.notes.warnings(options.source)]
    if len(texts) == MAX_TEXTS:
        notes.append(f"{options.source}: a random sample of {MAX_TEXTS:,} texts is used")

    return Pool(
        texts=texts,
        columns=list(columns),
        form=csv_form(sources[0], options.text_columns, reading),
        notes=notes,
    )


def _without_files(source: str, left_out: Sequence[Path]) -> list[str]:
    if Path(source).exists():
        return [source]
    own = {path_of(file) for file in left_out}
    files = [path for path in sorted(fitting_paths(source)) if path_of(Path(path)) not in own]
    return files or [source]


def has_label(row: Row, label_column: str) -> bool:
    """Whether a row has a label in a column; an empty list says that there are none."""
    label = row.value(label_column)
    return label is not None and str(label).strip() != ""


def _drawn_texts(rows: Iterable[Row]) -> list[PoolText]:
    # The heap has the text with the largest rank first, which is the next to be left out.
    heap: list[tuple[int, PoolText]] = []
    keys: set[str] = set()
    for row in rows:
        if not plain_text(row.text).strip():
            continue

        key = key_of_text(row.text)
        rank = drawn_rank(key)
        is_full = len(heap) == MAX_TEXTS
        if key in keys or (is_full and rank > -heap[0][0]):
            continue

        cells = {name: cell(value) for name, value in (row.record or {}).items()}
        entry = (-rank, PoolText(key, row.text, cells))
        keys.add(key)
        if is_full:
            _, left_out = heapq.heappushpop(heap, entry)
            keys.remove(left_out.key)
        else:
            heapq.heappush(heap, entry)

    heap.sort(key=lambda entry: -entry[0])
    return [text for _, text in heap]


def without_near_duplicates(
    texts: Sequence[PoolText], known_texts: Mapping[str, str]
) -> list[PoolText]:
    """Keep the first of texts that are alike, so that they are asked once.

    Texts like `known_texts`, which were labelled or skipped, are left out; those themselves stay.
    """
    unknown = [text for text in texts if text.key not in known_texts]
    numbers = texts_alike([*known_texts.values(), *(text.text for text in unknown)]).tolist()

    seen = set(numbers[: len(known_texts)])
    left_out = set()
    for text, number in zip(unknown, numbers[len(known_texts) :], strict=True):
        if number in seen:
            left_out.add(text.key)
        seen.add(number)
    return [text for text in texts if text.key not in left_out]
