"""The pool: the texts that may be labelled, in an order drawn at random."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from encoder_cls.bulk.suggestions import has_label
from encoder_cls.data.key_of_text import key_of_text
from encoder_cls.data.random_sample import drawn_rank
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.csv_form import form_of
from encoder_cls.data.reading.options import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.source_files import files_named
from encoder_cls.data.sources import EXAMPLE, read_rows
from encoder_cls.data.text_groups import texts_alike
from encoder_cls.errors import NoRowsError
from encoder_cls.system.csv_cells import CsvForm, cell
from encoder_cls.system.display import counted, shown
from encoder_cls.system.files import path_of
from encoder_cls.system.hub import HUB

# The maximum number of texts in memory. A larger pool is sampled: nobody labels as many texts.
MAX_TEXTS = 50_000


class PoolText(NamedTuple):
    """A text of the pool; `cells` are the values of all columns of its row, by name."""

    key: str
    text: str
    cells: Mapping[str, str]


@dataclass(frozen=True)
class Pool:
    """The texts that may be labelled.

    Attributes:
        texts: the distinct texts, in an order drawn at random that depends only on the texts: a
            pool that was sorted or extended keeps it.
        form: the form of its first file, for tables in CSV.
        notes: notes and warnings for the user.
    """

    texts: Sequence[PoolText]
    columns: Sequence[str]
    form: CsvForm
    notes: Sequence[str]


def read_pool(
    source: str,
    text_columns: Sequence[str],
    reading: Reading,
    *,
    label_column: str | None = None,
    left_out: Sequence[Path] = (),
) -> Pool:
    """Read the texts of a pool: a file, a folder or a pattern of files.

    Rows that are not empty in `label_column` have been labelled. Files that are `left_out` are not
    part of the pool, though a pattern may match them.

    Raises:
        DataError: the pool is missing or malformed, or has no text.
    """
    notes: list[str] = []
    reading.notify = notes.append

    # The names of the columns, in the order in which they occur.
    columns: dict[str, None] = {}
    num_labelled = 0
    sources = _without_files(source, left_out)

    def unlabelled_rows() -> Iterator[Row]:
        nonlocal num_labelled
        all_columns = Columns(text_columns, every=True)
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
            raise NoRowsError(f"{source}: has no texts to label, only {with_label}")
        notes.append(f"{source}: {with_label} left out")
    if not texts:
        raise NoRowsError(f"{source}: has no texts to label")
    notes += [f"warning: {warning}" for warning in reading.notes.warnings(source)]
    if len(texts) == MAX_TEXTS:
        notes.append(f"{source}: a random sample of {MAX_TEXTS:,} texts is used")

    return Pool(
        texts=texts,
        columns=list(columns),
        form=_form_of(sources[0], text_columns, reading),
        notes=notes,
    )


def _without_files(source: str, left_out: Sequence[Path]) -> list[str]:
    """The source itself; or the files that match a pattern, without some of them."""
    if Path(source).exists() or source.startswith((HUB, EXAMPLE)):
        return [source]
    own = {path_of(file) for file in left_out}
    files = [str(file) for file in files_named(source) if path_of(file) not in own]
    return files or [source]


def _drawn_texts(rows: Iterable[Row]) -> list[PoolText]:
    """The texts with the least ranks, in this order, without blank and equal texts."""
    # The heap has the text with the largest rank first, which is the next to be left out.
    heap: list[tuple[int, PoolText]] = []
    keys: set[str] = set()
    for row in rows:
        if not row.text.strip():
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

    `known_texts` have been labelled or skipped, by key. Texts that are like them are left out; they
    themselves are kept.
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


def _form_of(source: str, text_columns: Sequence[str], reading: Reading) -> CsvForm:
    """The form of the first file of a source, or of an ordinary CSV file."""
    if not source.startswith((HUB, EXAMPLE)):
        files = [file for file in files_named(source) if file.is_file()]
        if files:
            return form_of(files[0], text_columns, reading)
    return CsvForm(has_mark=False)
