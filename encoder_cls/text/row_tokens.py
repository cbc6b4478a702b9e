"""The tokens of the parts of a row: of its features, and of the marks before its fields.

A feature has the value of a category as one token, or as a number a token for each of the edges
that it passes, so that the order of numbers is seen. A value that is missing, and a category that
is rare, have tokens, too. Each token begins with a separator of `system.row_text`, so that no text
has it:

    RS title                the mark of a field
    RS channel US           a missing value
    RS channel US US        another value than the known ones
    RS channel US email     a category
    RS employees US US 36.5 a number of at least 36.5

They follow the special tokens in the vocabulary. Which columns a model knows, and the edges of its
numbers, are read from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.system.fields import number_written
from encoder_cls.system.row_text import RS, US, row_parts, without_separators
from encoder_cls.text.tokens import (
    CLS_ID,
    FEATURE,
    FIELD,
    SPECIAL_TOKENS,
    WORD,
    TokenChunk,
    TokenReader,
    flat_indices,
    offsets_of_lengths,
)

# The rows from which features are learned, at most, spread evenly over all rows.
MAX_ROWS = 200_000
# A column of numbers has more different values than this. With fewer, each is a category.
MAX_NUMBERS_AS_CATEGORIES = 10
# At least this share of its rows with a value have a number; others may have "n/a" or "unknown".
MIN_SHARE_OF_NUMBERS = 0.75
# The edges of a column of numbers divide its values into so many parts of about the same size.
PARTS_OF_NUMBERS = 16
# The most categories of a column that are known, and the fewest rows that a known one has.
MAX_CATEGORIES = 1000
MIN_ROWS_OF_CATEGORY = 2


class RowForm(NamedTuple):
    """The columns of rows that a tokenizer knows.

    Attributes:
        fields: empty if texts are of one column.
        edges: of each feature, increasing; empty for categories.
    """

    fields: tuple[str, ...]
    edges: Mapping[str, tuple[float, ...]]

    @property
    def features(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(self.edges)

    @property
    def most_tokens(self) -> int:
        """The most tokens of a row before its words, with `[CLS]`."""
        return 1 + sum(max(1, len(edges)) for edges in self.edges.values())

    def marks(self, names: Sequence[str]) -> list[str | None]:
        """The mark of each field by name, or by place if other columns are as many."""
        if len(names) == len(self.fields) and set(names) != set(self.fields):
            names = self.fields
        return [_mark(name) if name in self.fields else None for name in names]

    def tokens(self) -> list[str]:
        """The tokens of the form, without those of categories."""
        tokens = [_mark(field) for field in self.fields]
        for name, edges in self.edges.items():
            tokens += [_missing(name), _other(name)]
            tokens += [_edge(name, edge) for edge in edges]
        return tokens

    def feature_tokens(self, values: Mapping[str, str]) -> list[str]:
        """The tokens of features, unknown categories among them."""
        tokens = []
        for name in self.edges:
            tokens += self.tokens_of(name, values.get(name, ""))
        return tokens

    def tokens_of(self, name: str, value: str) -> list[str]:
        """The tokens of one feature; the smallest numbers have none."""
        if not value:
            return [_missing(name)]

        edges = self.edges[name]
        number = number_written(value) if edges else None
        if number is None:
            return [_category(name, value)]
        passed = edges[: bisect_right(edges, number)]
        return [_edge(name, edge) for edge in passed]


def _mark(field: str) -> str:
    return f"{RS}{field}"


def _missing(feature: str) -> str:
    return f"{RS}{feature}{US}"


def _other(feature: str) -> str:
    return f"{RS}{feature}{US}{US}"


def _category(feature: str, value: str) -> str:
    return f"{RS}{feature}{US}{value}"


def _edge(feature: str, edge: float) -> str:
    return f"{RS}{feature}{US}{US}{edge!r}"


# --- Parse ----------------------------------------------------------------------------------------


def kind_of_token(token: str) -> int:
    """Whether a token is a word, a field or a feature."""
    if not token.startswith(RS):
        return WORD
    return FEATURE if US in token else FIELD


def token_of_other(token: str) -> str:
    """The token for an unknown category."""
    name, _, _ = token.partition(US)
    return f"{name}{US}{US}"


def feature_name(token: str) -> str:
    """A feature as a person reads it, such as `channel=email` or `employees≥37`."""
    name, _, value = token.removeprefix(RS).partition(US)
    if not value:
        return f"{name}=(missing)"
    if value == US:
        return f"{name}=(other)"
    if value.startswith(US):
        return f"{name}≥{float(value.removeprefix(US)):g}"
    return f"{name}={value}"


def row_form(tokenizer: Tokenizer) -> RowForm | None:
    """The form of the rows that a tokenizer knows; None if it reads only texts.

    Raises:
        ValueError: the tokens of features are not as `RowForm.tokens` writes them.
    """
    ids = count(len(SPECIAL_TOKENS))
    return form_of_tokens(tokenizer.id_to_token(token_id) or "" for token_id in ids)


def known_values(tokenizer: Tokenizer) -> dict[str, list[str]]:
    """The categories, or the edges, that are known of each feature."""
    form = row_form(tokenizer)
    if form is None:
        return {}
    known: dict[str, list[str]] = {name: [] for name in form.features}
    for token in tokenizer.get_vocab():
        name, _, value = token.removeprefix(RS).partition(US)
        if kind_of_token(token) == FEATURE and value not in {"", US}:
            known[name].append(value.removeprefix(US))
    return known


def form_of_tokens(tokens: Iterable[str]) -> RowForm | None:
    """The form of `learned_tokens`, up to the first category."""
    fields = []
    edges: dict[str, list[float]] = {}
    found = []
    for token in tokens:
        name, separator, value = token.removeprefix(RS).partition(US)
        is_category = bool(value) and not value.startswith(US)
        if not token.startswith(RS) or not name or is_category:
            break

        found.append(token)
        if not separator:
            fields.append(name)
        elif not value:
            edges[name] = []
        elif value != US:
            edges.setdefault(name, []).append(float(value.removeprefix(US)))

    if len(fields) < 2 and not edges:
        return None
    form = RowForm(tuple(fields), {name: tuple(passed) for name, passed in edges.items()})
    if form.tokens() != found or any(sorted(passed) != list(passed) for passed in edges.values()):
        raise ValueError("the tokens of its features are not in order")
    return form


# --- Learn ----------------------------------------------------------------------------------------


def learned_tokens(
    rows: Collection[str], groups: NDArray[np.int64], *, min_frequency: int
) -> list[str]:
    """Learn the tokens of features and fields from rows of equal columns; none from texts.

    A category is known if it is in rows of `min_frequency` groups, whose numbers are (rows,).
    """
    parts = row_parts(next(iter(rows), ""))
    fields = tuple(name for name, _ in parts.fields if name)
    if not fields and not parts.features:
        return []

    values: dict[str, Counter[str]] = {name: Counter() for name in parts.features}
    groups_of: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    step = -(-len(rows) // MAX_ROWS)
    for row, group in zip(islice(rows, 0, None, step), groups[::step].tolist(), strict=True):
        for name, value in row_parts(row).features.items():
            if value and name in values:
                values[name][value] += 1
                groups_of[name, value].add(group)

    edges = {name: _learned_edges(counts) for name, counts in values.items()}
    tokens = RowForm(fields, edges).tokens()
    least = max(min_frequency, MIN_ROWS_OF_CATEGORY)
    for name, counts in values.items():
        # Equally frequent categories are in alphabetical order.
        ranked = [value for value, _ in sorted(counts.items(), key=_frequency_rank)]
        if edges[name]:
            ranked = [value for value in ranked if number_written(value) is None]
        for value in ranked[:MAX_CATEGORIES]:
            if len(groups_of[name, value]) >= least:
                tokens.append(_category(name, value))
    return tokens


def _frequency_rank(value_and_count: tuple[str, int]) -> tuple[int, str]:
    value, count_of_value = value_and_count
    return -count_of_value, value


def _learned_edges(counts: Counter[str]) -> tuple[float, ...]:
    numbers = []
    counts_of_numbers = []
    for value, count_of_value in counts.items():
        number = number_written(value)
        if number is not None:
            numbers.append(number)
            counts_of_numbers.append(count_of_value)
    if len(set(numbers)) <= MAX_NUMBERS_AS_CATEGORIES:
        return ()
    if sum(counts_of_numbers) < MIN_SHARE_OF_NUMBERS * counts.total():
        return ()

    # Every value passes the smallest one, which may be that of most rows, such as 0.
    values = np.repeat(np.array(numbers, dtype=np.float64), counts_of_numbers)
    distinct = np.unique(values)
    larger = values[values > distinct[0]]
    shares = np.arange(PARTS_OF_NUMBERS) / PARTS_OF_NUMBERS
    firsts = np.unique(np.quantile(larger, shares, method="higher"))

    # An edge lies halfway between two values: that of a single row is in no file of the model.
    lasts = distinct[np.searchsorted(distinct, firsts) - 1]
    edges = np.unique(lasts / 2 + firsts / 2)
    return tuple(edges.tolist())


# --- Read -----------------------------------------------------------------------------------------


def reader_of_rows(read: TokenReader, form: RowForm | None) -> TokenReader:
    """A reader of rows, made of one of texts; without a form, all rows are texts."""
    if form is None:
        return read
    return partial(_read_rows, read, form)


def _read_rows(
    read: TokenReader, form: RowForm, rows: Sequence[str], max_tokens: int
) -> TokenChunk:
    # Each text is read by itself. Its `[CLS]` is replaced by what stands before its words.
    texts: list[str] = []
    heads: list[list[str]] = []
    first_texts = []
    for row in rows:
        parts = row_parts(row)
        first_texts.append(len(texts))
        head = [SPECIAL_TOKENS[CLS_ID], *form.feature_tokens(parts.features)]
        marks = form.marks([name for name, _ in parts.fields])
        for mark, (_, text) in zip(marks, parts.fields, strict=True):
            texts.append(without_separators(text))
            heads.append([*head, mark] if mark else head)
            head = []
    chunk = read(texts, max_tokens)

    # Number the tokens of the heads behind those of the texts.
    index = {token: number for number, token in enumerate(chunk.distinct)}
    head_tokens = [index.setdefault(token, len(index)) for head in heads for token in head]
    head_lengths = np.array([len(head) for head in heads], dtype=np.int64)
    body_lengths = chunk.lengths - 1

    lengths = head_lengths + body_lengths
    starts = offsets_of_lengths(lengths)[:-1]
    indices = np.zeros(lengths.sum(), dtype=np.int32)
    indices[flat_indices(starts, head_lengths)] = head_tokens
    body_starts = offsets_of_lengths(chunk.lengths)[:-1] + 1
    indices[flat_indices(starts + head_lengths, body_lengths)] = chunk.indices[
        flat_indices(body_starts, body_lengths)
    ]

    lengths_of_rows = np.add.reduceat(lengths, first_texts)
    kept = np.minimum(lengths_of_rows, max_tokens)
    starts_of_rows = offsets_of_lengths(lengths_of_rows)[:-1]
    return TokenChunk(list(index), indices[flat_indices(starts_of_rows, kept)], kept)
