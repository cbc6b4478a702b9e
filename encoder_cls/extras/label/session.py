"""A session: the text that is asked, and what a person does with it.

Each change goes through this class, and is on the disk when its method returns; one that cannot be
written is an `EncoderClsError`, and changes nothing. Several pages may show a session: a change
names its text, and is refused (`RefusedError`) if that has been labelled from another page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypedDict

from encoder_cls.extras.label.class_list import ClassList
from encoder_cls.extras.label.label_table import LabelledText, LabelTable
from encoder_cls.extras.label.pool import PoolText
from encoder_cls.extras.label.session_memory import SessionMemory
from encoder_cls.extras.label.text_queue import RANDOM, SUGGESTED, ChosenText, Queue
from encoder_cls.system.row_text import readable, row_parts
from encoder_cls.system.web.responses import RefusedError

# Why a text has no label: the column `how` of the table of skipped texts.
SKIPPED = "skipped"
NO_CLASS = "no class fits"

# The maximum number of characters of a text, and of another column, that the page shows.
MAX_SHOWN = 20_000
MAX_SHOWN_CELL = 300


class Guess(NamedTuple):
    """What the model predicts for a text; in a review, `labels_now` are those that it has."""

    labels: Sequence[str]
    top: Sequence[tuple[str, float]]
    labels_now: Sequence[str] = ()


class WordsOfClass(TypedDict):
    """Words that speak for a class, and against it."""

    name: str
    words_for: Sequence[str]
    words_against: Sequence[str]


class Model(Protocol):
    """What a session asks of the model in the loop."""

    def guess(self, key: str, /) -> Guess | None:
        """The prediction for a text, if there is one yet."""

    def words(self, key: str, /) -> Sequence[WordsOfClass] | None:
        """The words for and against classes, if known."""

    def labels_changed(self) -> None:
        """Take note of changed labels, without waiting."""

    def summary(self) -> Mapping[str, Any] | None:
        """What the page shows of the model, if there is one."""


class NoModel:
    """A session without a model yet."""

    def guess(self, _key: str) -> Guess | None:
        """None."""
        return None

    def words(self, _key: str) -> Sequence[WordsOfClass] | None:
        """None."""
        return None

    def labels_changed(self) -> None:
        """Do nothing."""

    def summary(self) -> None:
        """None."""


class _Action(NamedTuple):
    """A label or a skip.

    Attributes:
        row: of skipped texts, its column `how` says why.
        how: how the text was chosen.
        replaced: what it has changed, with its position; an undo brings it back.
    """

    table: LabelTable
    row: LabelledText
    how: str
    replaced: tuple[int, _Action] | None = None


class Session:
    """The state of a labelling; `memory` is None in a review."""

    def __init__(
        self,
        queue: Queue,
        texts: Sequence[PoolText],
        classes: ClassList,
        labels: LabelTable,
        skipped: LabelTable,
        *,
        memory: SessionMemory | None = None,
        reviewed: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Continue a labelling, whose tables have been read.

        In a review, `reviewed` has the labels in the data, by key.
        """
        self.classes = classes
        self.labels = labels
        self.skipped = skipped
        self.memory = memory
        self.model: Model = NoModel()
        # What the page shows beside classes that are codes.
        self.code_names: Mapping[str, str] = {}
        self._queue = queue
        self._texts = texts
        self._reviewed = reviewed
        self._now = now

        # List what has been done in the order of time. Rows of equal times keep their order.
        labelled_keys = {row.key for row in labels.rows}
        actions = [_Action(labels, row, row.how) for row in labels.rows]
        for row in skipped.rows:
            if row.key not in labelled_keys:
                # The table does not say how the text was chosen, so it must not count as drawn at
                # random.
                actions.append(_Action(skipped, row, SUGGESTED))
        self._actions = sorted(actions, key=lambda action: action.row.labelled_at)
        # The text that is asked; None if all texts have been asked.
        self._current: ChosenText | None = self._next()

    @property
    def asked(self) -> dict[str, LabelledText]:
        """The texts that have been asked, in order, by key."""
        return {action.row.key: action.row for action in self._actions}

    def label(
        self,
        key: str,
        labels: Sequence[str],
        *,
        shown_guess: Sequence[str] = (),
        is_change: bool = False,
    ) -> None:
        """Give the text that is asked, or with `is_change` another one, its labels.

        A page without a response may ask again: the same label changes nothing.

        Raises:
            RefusedError: the text is not asked any more, or labels are not valid.
        """
        written = self._written(labels)
        position = self._position(key)
        if position is not None:
            action = self._actions[position]
            is_repeated = action.table is self.labels and action.row.label == written
            if is_repeated:
                return
            if is_change:
                self._change(position, written)
                return

        current = self._checked_current(key)
        guess = self._guess_to_keep(current, shown_guess)
        row = self._row(current.text, current.how, label=written, guess=guess)
        self._do(self.labels, row, current.how)

    def skip(self, key: str, why: str) -> None:
        """Leave the text that is asked without a label, because it is `SKIPPED` or of `NO_CLASS`.

        Raises:
            RefusedError: the text is not asked any more.
        """
        current = self._checked_current(key)

        # Where a text has any number of labels, it may have none.
        if why == NO_CLASS and self.classes.is_multi_label:
            self.label(key, [])
            return

        row = self._row(current.text, why, label="", guess="")
        self._do(self.skipped, row, current.how)

    def undo(self, num_asked: int) -> None:
        """Take back the last action, a label or a change.

        `num_asked` texts had been asked when the page was shown.

        Raises:
            RefusedError: there is nothing to undo, or the page is out of date.
        """
        if not self._actions:
            raise RefusedError(409, "there is nothing to undo")
        if num_asked != len(self._actions):
            raise RefusedError(409, "another page has labelled or undone a text; look again")

        action = self._actions[-1]
        if action.replaced:
            position, earlier = action.replaced
            self._exchange(action, earlier)
            self._actions.pop()
            self._actions.insert(position, earlier)
        else:
            action.table.replace([row for row in action.table.rows if row is not action.row])
            self._actions.pop()
            row = action.row
            self._current = ChosenText(PoolText(row.key, row.text, row.cells), action.how)
        self.model.labels_changed()

    def add_class(self, name: str) -> None:
        """Add a class; a `RefusedError` if its name is not valid."""
        self._check_classes_may_change()
        try:
            self.classes.add(name)
        except ValueError as error:
            raise RefusedError(422, str(error)) from None
        if self.memory:
            self.memory.keep_classes(self.classes.names)

    def rename_class(self, name: str, new_name: str) -> None:
        """Rename a class in all labels.

        Raises:
            RefusedError: there is no such class, or the new name is not valid.
        """
        self._check_classes_may_change()
        try:
            renamed = self.classes.renamed(name, new_name)
        except ValueError as error:
            raise RefusedError(422, str(error)) from None

        # Rows that a person has copied are equal, so each row is known by its identity. Rows of
        # labels that were changed since are no longer in the table, but an undo brings them back.
        new_rows: dict[int, LabelledText] = {}

        def new_row(row: LabelledText) -> LabelledText:
            if id(row) not in new_rows:
                label = self.classes.renamed_cell(row.label, renamed)
                guess = self.classes.renamed_cell(row.guess, renamed)
                new_rows[id(row)] = row._replace(label=label, guess=guess)
            return new_rows[id(row)]

        # Nothing changes here before the labels are on the disk.
        new_actions = [self._with_new_row(action, new_row) for action in self._actions]
        self.labels.replace([new_row(row) for row in self.labels.rows])
        number = self.classes.names.index(name)
        self.classes = renamed
        self._actions = new_actions
        if self.memory:
            self.memory.keep_new_name(name, renamed.names[number], renamed.names)
        self.model.labels_changed()

    def _with_new_row(
        self, action: _Action, new_row: Callable[[LabelledText], LabelledText]
    ) -> _Action:
        if action.table is not self.labels:
            return action
        replaced = None
        if action.replaced:
            position, earlier = action.replaced
            replaced = (position, self._with_new_row(earlier, new_row))
        return action._replace(row=new_row(action.row), replaced=replaced)

    def state(self, back: int = 0) -> dict[str, Any]:
        """What the page shows: the text that is asked, or one of `back` texts before."""
        back = max(0, min(back, len(self._actions)))
        counts = Counter[str]()
        for row in self.labels.rows:
            counts.update(self.classes.labels_in(row.label))
        classes = []
        for name in self.classes.names:
            of_class: dict[str, Any] = {"name": name, "count": counts[name]}
            if name in self.code_names:
                of_class["beside"] = self.code_names[name]
            classes.append(of_class)

        return {
            "classes": classes,
            "is_multi_label": self.classes.is_multi_label,
            "is_review": self._reviewed is not None,
            "text": self._shown_text(back),
            "back": back,
            "last": self._shown_last(),
            "num_labelled": len(self.labels.rows),
            "num_skipped": len(self.skipped.rows),
            "num_texts": len(self._texts),
            "num_asked": len(self._actions),
            "file": self.labels.path.name,
            "model": self.model.summary(),
        }

    def _check_classes_may_change(self) -> None:
        if self._reviewed is not None:
            raise RefusedError(422, "a review keeps the classes of the data")

    def _next(self) -> ChosenText | None:
        return self._queue.next(self.asked.keys())

    def _checked_current(self, key: str) -> ChosenText:
        if self._current is None or self._current.text.key != key:
            raise RefusedError(
                409, "this text is not asked any more: another page has labelled or undone it"
            )
        return self._current

    def _position(self, key: str) -> int | None:
        for position, action in enumerate(self._actions):
            if action.row.key == key:
                return position
        return None

    def _written(self, labels: Sequence[str]) -> str:
        try:
            return self.classes.written(labels)
        except ValueError as error:
            raise RefusedError(422, str(error)) from None

    def _row(self, text: PoolText, how: str, *, label: str, guess: str) -> LabelledText:
        """Make a row; `how` says how the text was chosen, or why it has no label."""
        label_in_data = ""
        if self._reviewed is not None:
            label_in_data = self._reviewed.get(text.key, "")

        return LabelledText(
            key=text.key,
            text=text.text,
            label=label,
            labelled_at=self._time(),
            how=how,
            guess=guess,
            label_in_data=label_in_data,
            cells=text.cells,
        )

    def _time(self) -> str:
        return self._now().astimezone(UTC).isoformat(timespec="milliseconds")

    def _do(self, table: LabelTable, row: LabelledText, how: str) -> None:
        table.append(row)
        self._actions.append(_Action(table, row, how))
        self._current = self._next()
        self.model.labels_changed()

    def _change(self, position: int, label: str) -> None:
        """Change an earlier text, as the last action."""
        earlier = self._actions[position]

        # The row of a skipped text says why it was skipped, that of a label how it was chosen.
        row = earlier.row._replace(label=label, labelled_at=self._time(), how=earlier.how)
        change = _Action(self.labels, row, earlier.how, replaced=(position, earlier))
        self._exchange(earlier, change)
        self._actions.pop(position)
        self._actions.append(change)
        self.model.labels_changed()

    def _exchange(self, old: _Action, new: _Action) -> None:
        if old.table is new.table:
            rows = [new.row if row is old.row else row for row in old.table.rows]
            old.table.replace(rows)
            return

        # A text must not be in neither table, and one in both counts as labelled. Where one table
        # cannot be written, nothing changes.
        old.table.check_unchanged()
        new.table.append(new.row)
        old.table.replace([row for row in old.table.rows if row is not old.row])

    def _guess_to_keep(self, chosen: ChosenText, shown_guess: Sequence[str]) -> str:
        """The guess to keep: the one shown, or the hidden one.

        Those for random texts are hidden: they tell how often the model is right.
        """
        kept = shown_guess
        if chosen.how == RANDOM:
            hidden_guess = self.model.guess(chosen.text.key)
            kept = ()
            if hidden_guess:
                kept = hidden_guess.labels

        known = [label for label in kept if label in self.classes.names]
        if not known:
            return ""
        return self._written(known)

    def _shown_text(self, back: int) -> dict[str, Any] | None:
        if back:
            return self._shown_earlier_text(self._actions[-back])
        if self._current is None:
            return None

        # The guess for a text drawn at random is hidden.
        text, how = self._current
        shown_guess = None
        if how != RANDOM:
            guess = self.model.guess(text.key)
            if guess:
                shown_guess = guess._asdict()
        return _shown_text_alone(text) | {
            "how": how,
            "labels": None,
            "why_skipped": "",
            "guess": shown_guess,
            "words": self.model.words(text.key),
        }

    def _shown_earlier_text(self, action: _Action) -> dict[str, Any]:
        row = action.row
        labels = None
        why_skipped = ""
        if action.table is self.labels:
            labels = self.classes.labels_in(row.label)
        else:
            why_skipped = row.how

        text = PoolText(row.key, row.text, row.cells)
        return _shown_text_alone(text) | {
            "how": action.how,
            "labels": labels,
            "why_skipped": why_skipped,
            "guess": None,
            "words": None,
        }

    def _shown_last(self) -> dict[str, Any] | None:
        """The last action, with the guess that was hidden until then."""
        if not self._actions:
            return None
        table, row, *_ = self._actions[-1]
        if table is self.skipped:
            return {"labels": None, "why_skipped": row.how, "guess": ""}
        return {"labels": self.classes.labels_in(row.label), "why_skipped": "", "guess": row.guess}


def _shown_text_alone(text: PoolText) -> dict[str, Any]:
    """A text and its columns, cut to what the page shows."""
    shown = readable(text.text)
    parts = row_parts(text.text)
    in_text = {*parts.features, *(name for name, _ in parts.fields)}
    columns = []
    for name, cell in text.cells.items():
        if name not in in_text and cell and cell.strip() != shown.strip():
            columns.append([name, cell[:MAX_SHOWN_CELL]])
    return {
        "key": text.key,
        "text": shown[:MAX_SHOWN],
        "num_left_out": max(0, len(shown) - MAX_SHOWN),
        "columns": columns,
    }
