"""Review the labels of a run on the page: the doubtful ones first, to keep or to change.

The table of the labels is what `data.corrections` reads.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from encoder_cls import Classifier, LabelRow, Row, load_classifier, review
from encoder_cls.extras.label.background_thread import BackgroundThread
from encoder_cls.extras.label.class_list import ClassList
from encoder_cls.extras.label.label_table import (
    KEY,
    LABEL,
    LABEL_IN_DATA,
    REVIEW_COLUMNS,
    LabelTable,
)
from encoder_cls.extras.label.pool import PoolText
from encoder_cls.extras.label.session import Guess, Session, WordsOfClass
from encoder_cls.extras.label.session_memory import SessionMemory, order_of_keys, skipped_file
from encoder_cls.extras.label.text_queue import ChosenText

REVIEW = "review"

# The number of texts that are explained before they are asked.
AHEAD = 20
# The maximum number of tokens that are computed to explain a text for a class: about a second.
MAX_EXPLAINED_TOKENS = 1 << 15
# The maximum number of classes of a text that are explained.
MAX_CLASSES = 4
# The maximum number of words that are shown for and against a class.
MAX_WORDS = 6


class ReviewQueue:
    """Asks texts in a given order."""

    def __init__(self, texts: Sequence[PoolText]) -> None:
        self._texts = texts

    def next(self, asked: Collection[str]) -> ChosenText | None:
        """The next text whose key has not been asked, if any."""
        for text in self._texts:
            if text.key not in asked:
                return ChosenText(text, REVIEW)
        return None


class OpenedReview(NamedTuple):
    """A session of a review, its model, and notes."""

    session: Session
    model: ReviewModel
    notes: Sequence[str]


def open_review(run: Path, output: Path, moved: Mapping[str, str]) -> OpenedReview | None:
    """Find the doubtful labels of a run, if any, and continue the corrections of the output.

    `moved` has the new paths of the run's data, by key.

    Raises:
        ConfigError: the path is not a run, or the run has no classifier yet.
        DataError: its data or the table is malformed.
        EncoderClsError: a table cannot be written.
    """
    found = review(run, moved=moved)
    if not found.rows:
        return None

    # Equal texts have one correction. The first of them is the most doubtful one.
    text_column = found.data.text_column[0]
    split_column = found.added_column("split")
    place_column = found.added_column("place")
    texts: dict[str, PoolText] = {}
    rows: dict[str, LabelRow] = {}
    for row in found.rows:
        place = row.where.removeprefix(f"{Path.cwd()}{os.sep}")
        cells = {text_column: row.text, split_column: row.split, place_column: place}
        texts.setdefault(row.key, PoolText(row.key, row.text, cells))
        rows.setdefault(row.key, row)

    names = {
        LABEL: found.data.label_column,
        KEY: found.added_column(KEY),
        LABEL_IN_DATA: found.added_column(LABEL_IN_DATA),
    }
    # The fields have the separator of the data, with which the corrections will be read.
    form = found.csv_form()._replace(has_mark=True)
    tables = []
    notes = []
    for path in (output, skipped_file(output)):
        table = LabelTable(
            path,
            (text_column, split_column, place_column),
            form,
            text_columns=(text_column,),
            needs_label=path == output and not found.is_multi_label,
            added=REVIEW_COLUMNS,
            fixed_names=names,
        )
        notes += table.read("utf-8", list(texts.values()))
        tables.append(table)
    labels, skipped = tables
    labels.create()

    # Classes keep the keys that they had when the data were labelled.
    labelled = SessionMemory(Path(found.data.train).absolute())
    classes = ClassList.of_data(
        order_of_keys(found.class_names, like=labelled.now.classes),
        is_multi_label=found.is_multi_label,
        separator=found.separator,
    )
    session = Session(
        ReviewQueue(list(texts.values())),
        list(texts.values()),
        classes,
        labels,
        skipped,
        reviewed={key: row.label_in_data for key, row in rows.items()},
    )
    classifier = load_classifier(run, engine="numpy")
    if classifier.codes:
        session.code_names = classifier.codes.names
    return OpenedReview(session, ReviewModel(session, classifier, rows), notes)


class ReviewModel:
    """The predictions of a run for its doubtful labels, and the words that explain them.

    A thread computes the words while the block runs, some texts ahead of the person.
    """

    def __init__(
        self, session: Session, classifier: Classifier, rows: Mapping[str, LabelRow]
    ) -> None:
        self._session = session
        self._classifier = classifier
        self._rows = rows
        self._words: dict[str, list[WordsOfClass]] = {}
        self._thread = BackgroundThread(self._explain_ahead)

    def __enter__(self) -> Self:
        self._session.model = self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()

    def guess(self, key: str) -> Guess | None:
        """The labels that the run predicts."""
        row = self._rows.get(key)
        if row is None:
            return None

        # The score is 1 minus the probability of the label. With several labels a text, it is not
        # known which of them it belongs to.
        classes = self._session.classes
        top = []
        if not classes.is_multi_label:
            top = [(row.label, 1 - row.score)]
        return Guess(
            labels=classes.labels_in(row.suggested),
            top=top,
            labels_now=classes.labels_in(row.label),
        )

    def words(self, key: str) -> Sequence[WordsOfClass] | None:
        """The words for and against the classes in doubt, if computed yet."""
        return self._words.get(key)

    def labels_changed(self) -> None:
        """Explain the next texts, without waiting."""
        self._thread.notify()

    def summary(self) -> Mapping[str, Any]:
        """What the page shows of the model."""
        classes = self._session.classes
        rows = self._session.labels.rows
        num_kept = 0
        for row in rows:
            labels_in_data = classes.labels_in(row.label_in_data)
            num_kept += set(classes.labels_in(row.label)) == set(labels_in_data)
        num_changed = len(rows) - num_kept
        return {
            "has_guesses": True,
            "accuracy": f"changed: {num_changed:,}; kept: {num_kept:,}",
            "outlook": "read them from the top until labels are right",
            "status": "",
            "curve": [],
        }

    def _explain_ahead(self) -> None:
        rows = list(self._rows.items())

        def next_row() -> tuple[str, LabelRow] | None:
            number = len(self._words)
            if number > len(self._session.asked) + AHEAD:
                return None
            return rows[number]

        while len(self._words) < len(rows):
            found = self._thread.wait_for(next_row)
            if found is None:
                return
            key, row = found
            self._words[key] = self._words_of(row)

    def _words_of(self, row: LabelRow) -> list[WordsOfClass]:
        """Explain the classes that only the labels or only the prediction has."""
        labels = self._session.classes.labels_in(row.label)
        suggested = self._session.classes.labels_in(row.suggested)
        in_doubt = [name for name in labels if name not in suggested]
        in_doubt += [name for name in suggested if name not in labels]

        # The classifier does not know a class that training texts do not have.
        known = set(self._classifier.label_names)
        names = [name for name in in_doubt if name in known][:MAX_CLASSES]
        explanations = self._classifier.explain(
            [Row(row.row)] * len(names), labels=names, max_tokens=MAX_EXPLAINED_TOKENS
        )

        words = []
        for name, explanation in zip(names, explanations, strict=True):
            of_class = WordsOfClass(
                name=name,
                words_for=explanation.words_for()[:MAX_WORDS],
                words_against=explanation.words_against()[:MAX_WORDS],
            )
            words.append(of_class)
        return words
