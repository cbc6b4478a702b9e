"""Columns and cells of answer tables."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_cls.errors import DataError
from encoder_cls.system.display import csv_row, json_text, printable, shown

if TYPE_CHECKING:
    from encoder_cls.answers.inputs import Columns, Input
    from encoder_cls.answers.request import Request
    from encoder_cls.inference.classifier import Prediction
    from encoder_cls.inference.explain import Explanation

SEPARATOR = "|"  # of the labels of a text, which `data.label_separator` can name


class Answer(NamedTuple):
    """A text and what is said of it; no label where its probability is too low, no words where none are explained.

    Multi-label, the answer is `labels`, and `label` none.
    """

    item: Input
    prediction: Prediction
    label: str | None
    words: Explanation | None
    labels: tuple[str, ...] | None = None


class Table:
    """Which columns there are, and what an answer has in them.

    Args:
        taken_over: the columns of the input: `id`, or all of them.
        keep_columns: whether it is all of them; then of the answer's own only those are there that answer.
        top_k: how many classes are named.
        explained: whether there is a column of words.
        is_multi_label: whether an answer has any number of labels.
        set_threshold: the probability from which classes are in the column of sets; none: there is no such column.
    """

    # No dataclass, nor is the next one: to make one takes a millisecond of each start.
    def __init__(
        self,
        *,
        taken_over: tuple[str, ...],
        keep_columns: bool,
        top_k: int,
        explained: bool,
        is_multi_label: bool = False,
        set_threshold: float | None = None,
    ) -> None:
        self.is_multi_label = is_multi_label
        self.taken_over = taken_over
        self.keep_columns = keep_columns
        self.top_k = top_k
        self.explained = explained
        self.set_threshold = set_threshold
        self._known = frozenset(taken_over)

    def answer_names(self) -> dict[str, str]:
        """The answer's columns, and what each is called here: otherwise where the input has a column of its name."""
        ranked = [f"{column}_{rank}" for rank in range(2, self.top_k + 1) for column in ("label", "probability")]
        names = ["label", "probability", *ranked]
        if self.is_multi_label:
            first = ["label_1", "probability_1"] if ranked else []
            names = ["labels", "probabilities", *first, *ranked]
        names += [] if self.set_threshold is None else ["set"]
        names += [] if self.keep_columns else ["truncated", "unknown_words", "unfamiliar", "reason"]
        names += ["explanation"] if self.explained else []
        return {name: answer_name(name, self.taken_over) for name in names}

    def values_taken_over(self, item: Input) -> list[Any]:
        """What a row of the input has in the columns that are taken over.

        Raises:
            DataError: it has a column that is not among them.
        """
        if not self.keep_columns:
            return [item.id] * len(self.taken_over)
        record = item.record or {}
        if not record.keys() <= self._known:
            _refuse_late(record, self.taken_over)
        return [record.get(name) for name in self.taken_over]

    def values_of_answer(self, answer: Answer) -> list[Any]:
        """What an answer has in its columns, the explanation left out."""
        prediction, label = answer.prediction, answer.label
        top = prediction.top(self.top_k)
        if not self.is_multi_label or len(top) == 1:
            top = top[1:]
        ranked: list[Any] = [value for named in top for value in named]
        if prediction.reason:
            ranked = [None] * len(ranked)
        values = [label, prediction.probability, *ranked]
        if answer.labels is not None:
            values = [list(answer.labels), [prediction.probabilities[it] for it in answer.labels], *ranked]
        values += [] if self.set_threshold is None else [prediction.label_set(self.set_threshold)]
        if self.keep_columns:
            return values
        return [*values, prediction.truncated, prediction.unknown_words, prediction.unfamiliar, prediction.reason]


def new_table(columns: Columns, request: Request, *, num_classes: int, is_multi_label: bool = False) -> Table:
    """The table of some texts, whose columns are known."""
    return Table(
        taken_over=tuple(columns),
        keep_columns=bool(request.keep_columns),
        top_k=min(request.top_k, num_classes),
        explained=request.explained,
        is_multi_label=is_multi_label,
        set_threshold=request.set_threshold,
    )


def answer_name(name: str, taken: Container[str]) -> str:
    """The name of a column of the answer: the input's own columns keep theirs."""
    while name in taken:
        name = f"predicted_{name}"
    return name


class TableLines:
    """A table as lines: values that tabs (TSV) or commas (CSV) separate; a quoted value of CSV may have several lines.

    What the program itself says has its control characters escaped. Columns that are kept in CSV stand there as in the
    input, unless a terminal would obey them. CSV may have another separator than commas.
    """

    def __init__(self, *, table: Table, is_csv: bool, separator: str = ",", for_terminal: bool = False) -> None:
        self.table = table
        self.is_csv = is_csv
        self.separator = separator
        self.for_terminal = for_terminal

    def header(self) -> str:
        """The names of the columns."""
        names = self.table.answer_names().values()
        return self._joined([*map(self._kept, self.table.taken_over), *map(self._kept, names)])

    def line(self, answer: Answer) -> str:
        """A row."""
        fields = [self._kept(cell(value)) for value in self.table.values_taken_over(answer.item)]
        fields += [_field(value) for value in self.table.values_of_answer(answer)]
        if self.table.explained:
            words = answer.words
            weights = [f"{printable(word.word)}:{word.weight:+.2f}" for word in words or ()]
            left_out = [f"({words.left_out} words left out)"] if words and words.left_out else []
            fields.append(" ".join(weights + left_out))
        return self._joined(fields)

    def _kept(self, value: str) -> str:
        if self.is_csv and self.table.keep_columns and not self.for_terminal:
            return encodable(value)
        return printable(value)

    def _joined(self, fields: Sequence[str]) -> str:
        if not self.is_csv:
            return "\t".join(fields)
        return csv_row(fields, separator=self.separator, is_guarded=False)


def _field(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, list):
        return SEPARATOR.join(map(_field, value))
    return printable(cell(value))


def cell(value: Any) -> str:
    """A value as the text that a table without types has for it: nothing as an empty one, lists and objects as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return record_text(value) if isinstance(value, dict | list | bool) else str(value)


def encodable(text: str) -> str:
    """A text that UTF-8 can hold: half surrogates, which JSON knows, are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def record_text(record: Any) -> str:
    """A record or a value as a line of JSON, also where it has values that JSON does not know, such as times.

    Raises:
        DataError: it is nested too deeply.
    """
    try:
        try:
            return json_text(record)
        except (TypeError, ValueError):
            return json_text(plain(record))
    except RecursionError:
        raise DataError("a row has lists or objects that are nested too deeply to be kept") from None


def plain(value: Any) -> Any:
    """A value as JSON knows it: a number that is none becomes null, of what JSON has nothing for it is the text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else str(value)


def _refuse_late(record: Mapping[str, Any], known: Sequence[str]) -> None:
    late = next(name for name in record if name not in known)
    raise DataError(
        f"a column {shown(late)} comes that the first rows do not have, and the input can be read but once: "
        "save it as a file, or choose --format jsonl"
    )
