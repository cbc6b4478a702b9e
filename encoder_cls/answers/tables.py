"""Columns and cells of answer tables."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from encoder_cls.errors import DataError
from encoder_cls.system.display import shown

if TYPE_CHECKING:
    from encoder_cls.answers.classify import Answer
    from encoder_cls.answers.inputs import Input
    from encoder_cls.answers.request import Request


class Table:
    """The columns of a table of answers, and the values of an answer in them.

    The columns of the input that are taken over are `id`, or all of them (`keep_columns`): then the answer's are label,
    probability, `unfamiliar` where the model measures it, and what is asked for.
    """

    def __init__(
        self,
        taken_over: Iterable[str],
        request: Request,
        *,
        keep_columns: bool,
        num_classes: int,
        is_multi_label: bool = False,
        with_unfamiliar: bool = False,
    ) -> None:
        self.taken_over = tuple(taken_over)
        self.keep_columns = keep_columns
        self.explained = request.explained
        self._top_k = min(request.top_k, num_classes)
        self._set_threshold = request.set_threshold
        self._is_multi_label = is_multi_label
        # What else is known of a text, by name; beside all columns of the input only that which is measured.
        self._about = ["truncated", "unknown_words", "unfamiliar", "reason"]
        if keep_columns:
            self._about = ["unfamiliar"] if with_unfamiliar else []
        self._known = frozenset(self.taken_over)

    def answer_names(self) -> dict[str, str]:
        """The answer's columns by name, each with its name here: another one where the input has such a column."""
        ranked = [f"{column}_{rank}" for rank in range(2, self._top_k + 1) for column in ("label", "probability")]
        names = ["label", "probability", *ranked]
        if self._is_multi_label:
            first = ["label_1", "probability_1"] if ranked else []
            names = ["labels", "probabilities", *first, *ranked]
        names += [] if self._set_threshold is None else ["set"]
        names += self._about
        names += ["explanation"] if self.explained else []
        return {name: answer_name(name, self.taken_over) for name in names}

    def values_taken_over(self, item: Input) -> list[Any]:
        """The values of the input's columns; `DataError` if the row has a column that the table does not have."""
        if not self.keep_columns:
            return [item.id] * len(self.taken_over)
        record = item.record or {}
        late = next((name for name in record if name not in self._known), None)
        if late is not None:
            raise DataError(
                f"a column {shown(late)} comes that the first rows do not have, and the input can be read but once: "
                "save it as a file, or choose --format jsonl"
            )
        return [record.get(name) for name in self.taken_over]

    def values_of_answer(self, answer: Answer) -> list[Any]:
        """The values of the answer's columns but the explanation."""
        prediction = answer.prediction
        top = prediction.top(self._top_k)
        if not self._is_multi_label or len(top) == 1:
            top = top[1:]
        ranked: list[Any] = [value for named in top for value in named]
        if prediction.reason:
            ranked = [None] * len(ranked)
        values = [answer.label, prediction.probability, *ranked]
        if answer.labels is not None:
            values = [list(answer.labels), [prediction.probabilities[it] for it in answer.labels], *ranked]
        values += [] if self._set_threshold is None else [prediction.label_set(self._set_threshold)]
        return [*values, *(getattr(prediction, name) for name in self._about)]


def answer_name(name: str, taken: Container[str]) -> str:
    """The name of a column of the answer beside columns that keep theirs."""
    while name in taken:
        name = f"predicted_{name}"
    return name


def encodable(text: str) -> str:
    """A text that UTF-8 can hold: half surrogates, which JSON knows, are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
