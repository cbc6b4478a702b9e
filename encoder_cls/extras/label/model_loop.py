"""The loop of the model: fit again in another process whenever there are enough new labels.

No call waits for a fit: a thread does, and the page goes on meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from encoder_cls import AccuracyEstimate
from encoder_cls.extras.label.background_thread import BackgroundThread
from encoder_cls.extras.label.estimates import (
    accuracy_line,
    estimate,
    outlook_line,
    random_sample,
)
from encoder_cls.extras.label.label_table import LabelledText
from encoder_cls.extras.label.pool import PoolText
from encoder_cls.extras.label.pool_model import TOP, Fit, Labels, PoolModel, has_enough
from encoder_cls.extras.label.session import Guess, Session
from encoder_cls.extras.label.session_memory import RememberedGuess, SessionMemory, curve_file
from encoder_cls.extras.label.text_queue import TextQueue
from encoder_cls.system.json_values import json_text
from encoder_cls.system.processes import Workers

FIRST_FIT = 10
# The number of texts of the random order whose guesses are kept for the next process, beside those
# of suggested texts: more than are asked until its first fit.
NUM_REMEMBERED = 50
# The number of new labels after which the model is fitted again: at least this many, and this share
# of the labels so far.
MIN_NEW_LABELS = 5
NEW_LABELS_SHARE = 0.1

Task = Labels | Path | None
"""What the process of the model does: see `PoolModel`."""


def labels_of_last_fit(num_labels: int) -> int:
    """The number of labels of the last fit that is due; 0 if none is.

    It is the same in every process, so a session that continues makes the fit of a killed one.
    """
    due = 0
    next_due = FIRST_FIT
    while next_due <= num_labels:
        due = next_due
        next_due += max(MIN_NEW_LABELS, int(NEW_LABELS_SHARE * next_due))
    return due


class ModelLoop:
    """Fits the model in another process while its block runs, and keeps its predictions.

    Args:
        log: gets a message if a fit fails.
        run: whose guesses are shown until the fits are better.
        classes_of_run: some of which the session may have renamed.
        apply: does a task of `PoolModel`, in place of another process.
    """

    def __init__(
        self,
        session: Session,
        queue: TextQueue,
        texts: Sequence[PoolText],
        log: Callable[[str], None],
        run: Path | None = None,
        classes_of_run: Sequence[str] = (),
        apply: Callable[[PoolModel, Task], Any] | None = None,
    ) -> None:
        self._session = session
        self._queue = queue
        self._log = log
        self._run_folder = run
        self._apply = apply

        # The index of each text by its key. Labelled texts that the pool does not have come last.
        all_texts = {text.key: text.text for text in texts}
        for row in session.labels.rows:
            all_texts.setdefault(row.key, row.text)
        self._index_of = {key: index for index, key in enumerate(all_texts)}
        self._pool_size = len(texts)
        self._model = PoolModel(list(all_texts.values()), len(texts))

        # The fit whose guesses are shown; None before the first one, when those that the session
        # has kept are shown.
        self._shown: Fit | None = None
        self._remembered: Mapping[str, RememberedGuess] = {}
        if session.memory:
            self._remembered = session.memory.now.guesses
            classes_of_run = [session.memory.name_today(name) for name in classes_of_run]
        # The numbers in the session of the classes of the run.
        numbers = [session.classes.names.index(name) for name in classes_of_run]
        self._numbers_of_run = np.array(numbers, dtype=np.int32)
        # The labels of the last fit, which is not made again.
        self._fitted: Labels | None = None
        # The predictions of the run; None if there are none, or once the fits are better.
        self._fit_of_run: Fit | None = None
        self._estimate: AccuracyEstimate | None = None
        self._status = ""
        self._curve_file = curve_file(session.labels.path)
        self._curve = _read_curve(self._curve_file, most_labels=len(session.labels.rows))
        if self._curve:
            self._estimate = self._curve[-1]

        self._workers: Workers[Task, Any] = Workers(self._model, 1)
        self._thread = BackgroundThread(self._run)

    def __enter__(self) -> Self:
        self._workers.__enter__()
        self._session.model = self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()
        # This kills the process. The thread then has an error in place of a fit.
        self._workers.__exit__()
        self._thread.join()

    def guess(self, key: str) -> Guess | None:
        """The prediction for a text, if there is one yet."""
        guess = self._numbered_guess(key)
        if guess is None:
            return None

        names = [self._session.classes.names[number] for number in guess.classes]
        top = list(zip(names, guess.probabilities, strict=True))
        num_listed = max(TOP, guess.num_predicted)
        return Guess(labels=names[: guess.num_predicted], top=top[:num_listed])

    def _numbered_guess(self, key: str) -> RememberedGuess | None:
        """The guess by the numbers of classes, which renaming keeps."""
        # The thread may exchange the fit at any time.
        fit = self._shown
        if fit is None:
            return self._remembered.get(key)
        index = self._index_of.get(key, self._pool_size)
        if index >= min(self._pool_size, len(fit.top_classes)):
            return None
        return RememberedGuess(
            classes=fit.top_classes[index].tolist(),
            probabilities=fit.top_probabilities[index].tolist(),
            num_predicted=int(fit.num_predicted[index]),
        )

    def words(self, key: str) -> None:
        """None: only a review has words."""

    def labels_changed(self) -> None:
        """Look whether a fit is due, without waiting."""
        self._thread.notify()

    @property
    def estimate(self) -> AccuracyEstimate | None:
        """How often the model is right, if known."""
        return self._estimate

    def summary(self) -> Mapping[str, Any]:
        """What the page shows of the model."""
        outlook = ""
        if self._estimate:
            accuracy = accuracy_line(self._estimate)
            outlook = outlook_line(self._estimate, self._session.labels.rows)
        elif self._has_guesses():
            accuracy = "how often it is right is known after a few more texts drawn at random"
        elif self._fitted:
            accuracy = ""
        else:
            accuracy = f"it learns from {FIRST_FIT} labels of two classes on"

        return {
            "has_guesses": self._has_guesses(),
            "accuracy": accuracy,
            "outlook": outlook,
            "status": self._status,
            "curve": [point._asdict() for point in self._curve],
        }

    def _has_guesses(self) -> bool:
        return self._shown is not None or bool(self._remembered)

    def _run(self) -> None:
        # A session that continues needs no first texts: its next fit suggests some.
        if self._run_folder or self.due() is None:
            self._status = "reading the texts"
            self.work(self._run_folder)
        due = self._thread.wait_for(self.due)
        while due is not None:
            self.work(due)
            due = self._thread.wait_for(self.due)

    def work(self, task: Task) -> None:
        """Let the process do a task, and take its result."""
        if isinstance(task, Labels):
            self._status = f"learning from your {len(task.texts):,} labels"
            self._fitted = task

        try:
            if self._apply:
                result = self._apply(self._model, task)
            else:
                [result] = self._workers.map([task])
        # The labelling goes on without the model, whatever happens to it.
        except Exception as error:
            if not self._thread.is_stopping:
                self._status = f"the model could not be fitted: {error}"
                self._log(f"warning: {self._status}")
            return

        # Show the result, and say last that it is there.
        status = ""
        if task is None:
            self._queue.suggestions = result
        elif isinstance(task, Path):
            self._fit_of_run = result._replace(top_classes=self._numbers_of_run[result.top_classes])
            # The last guesses of a session that continues stay until its fit is there.
            if not self._remembered or self.due() is None:
                self._show(self._fit_of_run)
        else:
            self._take(task, result)
            status = f"learned from {len(task.texts):,} labels in {result.seconds:.0f} s"
        self._status = status

    def _show(self, fit: Fit) -> None:
        self._shown = fit
        self._queue.suggestions = fit.suggestions
        if self._session.memory:
            self._keep_guesses(self._session.memory, fit)

    def _keep_guesses(self, memory: SessionMemory, fit: Fit) -> None:
        keys = list(self._index_of)[: self._pool_size]
        suggested = [keys[index] for index in fit.suggestions]
        asked = self._session.asked
        drawn = [key for key in keys if key not in asked][:NUM_REMEMBERED]

        guesses = {}
        for key in (*suggested, *drawn):
            guess = self._numbered_guess(key)
            if guess:
                guesses[key] = guess
        memory.keep(suggested=suggested, guesses=guesses)

    def _take(self, labels: Labels, fit: Fit) -> None:
        rows = self._rows_of(labels)
        sample = random_sample(rows)

        # As long as the trained model is not worse on the random sample, it stays.
        if self._fit_of_run:
            is_right = np.array(self._are_right(self._fit_of_run, rows))
            if is_right[sample].sum() >= fit.is_right[sample].sum():
                self._estimate = estimate(self._fit_of_run._replace(is_right=is_right), sample)
                return
            self._fit_of_run = None

        self._show(fit)
        self._estimate = estimate(fit, sample)
        if self._estimate:
            self._curve = _with_point(self._curve, self._estimate)
            with suppress(OSError), self._curve_file.open("a", encoding="utf-8") as file:
                file.write(json_text(self._estimate._asdict()) + "\n")

    def _are_right(self, fit: Fit, rows: Sequence[LabelledText]) -> list[bool]:
        classes = self._session.classes
        is_right = []
        for row in rows:
            index = self._index_of[row.key]
            labels: set[str] = set()
            if index < len(fit.top_classes):
                predicted = fit.top_classes[index, : fit.num_predicted[index]]
                labels = {classes.names[number] for number in predicted}
            is_right.append(labels == set(classes.labels_in(row.label)))
        return is_right

    def due(self) -> Labels | None:
        """The labels of the fit that is due, if one is."""
        # Leave out rows that a person has added to the table in the meantime.
        session = self._session
        rows = session.labels.rows[: labels_of_last_fit(len(session.labels.rows))]
        rows = [row for row in rows if row.key in self._index_of]

        classes = session.classes
        labels = [tuple(classes.labels_in(row.label)) for row in rows]
        present = {name for names in labels for name in names}
        numbers = [number for number, name in enumerate(classes.names) if name in present]
        due = Labels(
            texts=tuple(self._index_of[row.key] for row in rows),
            labels=tuple(labels),
            class_names=tuple(classes.names[number] for number in numbers),
            class_numbers=tuple(numbers),
            is_multi_label=classes.is_multi_label,
        )

        if due == self._fitted or not has_enough(due):
            return None
        return due

    def _rows_of(self, labels: Labels) -> list[LabelledText]:
        row_of = {row.key: row for row in self._session.labels.rows}
        keys = list(self._index_of)
        rows = []
        for index in labels.texts:
            key = keys[index]
            # A label may have been taken back during the fit.
            rows.append(row_of.get(key, LabelledText(key, "", "")))
        return rows


def _with_point(
    curve: Sequence[AccuracyEstimate], point: AccuracyEstimate
) -> list[AccuracyEstimate]:
    """Add a point in place of those with as many labels or more."""
    return [*(old for old in curve if old.labels < point.labels), point]


def _read_curve(path: Path, *, most_labels: int) -> list[AccuracyEstimate]:
    """Read the curve, without damaged lines, and labels that are gone."""
    curve: list[AccuracyEstimate] = []
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, TypeError):
                curve = _with_point(curve, AccuracyEstimate(**json.loads(line)))
    return [point for point in curve if point.labels <= most_labels]
