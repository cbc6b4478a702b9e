"""The model is fitted beside the labelling, which never waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.labelling import read_table, write_pool
from support.programs import TIME_LIMIT

from encoder_cls.extras.label import model_loop
from encoder_cls.extras.label.model_loop import ModelLoop, Task, labels_of_last_fit
from encoder_cls.extras.label.open_session import OpenedSession
from encoder_cls.extras.label.pool_model import PoolModel
from encoder_cls.extras.label.session import Session


class InThisProcess:
    """Stands for `Workers`, without another process."""

    def __init__(self, function: Callable, number: int) -> None:
        self._function = function

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, items: list) -> Iterator:
        return map(self._function, items)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def label_next(session: Session, topics: dict[str, str]) -> str:
    """Label the text that is asked, and return how it was chosen."""
    text = session.state()["text"]
    shown = text["guess"]["labels"] if text["guess"] else []
    session.label(text["key"], [topics[text["text"]]], shown_guess=shown)
    return text["how"]


def test_fits_are_due_at_the_same_numbers_in_every_process():
    due = [labels_of_last_fit(number) for number in range(200)]
    assert due[:21] == [0] * 10 + [10] * 5 + [15] * 5 + [20]
    assert sorted(set(due))[-3:] == [163, 179, 196]
    assert all(last <= number for number, last in enumerate(due))


@pytest.fixture
def topics(tmp_path) -> dict[str, str]:
    return write_pool(tmp_path / "pool.csv", 30)


def test_guesses_come_with_the_labels(reopen, topics, monkeypatch):
    """Guesses for texts drawn at random are hidden, and kept; suggested texts show them."""
    monkeypatch.setattr(model_loop, "Workers", InThisProcess)
    opened = reopen(classes=tuple(sorted(set(topics.values()))))
    session = opened.session
    messages: list[str] = []

    with ModelLoop(session, opened.queue, opened.texts, messages.append) as loop:
        until(lambda: bool(opened.queue.suggestions))
        while len(session.labels.rows) < 30:
            label_next(session, topics)
        until(lambda: loop.summary()["status"].startswith("learned from 30 labels"))
        hows = [label_next(session, topics) for _ in range(10)]
        summary = session.state()["model"]

    assert messages == []
    assert hows.count("random") == 1
    for row in read_table(Path("labels.csv"))[30:]:
        assert row["guess"] == row["label"]
    assert summary["has_guesses"]
    assert summary["accuracy"].startswith("right on about ")
    assert summary["curve"][0]["labels"] <= 30

    # Another process shows the curve at once, and makes the same fit.
    again = reopen()
    with ModelLoop(again.session, again.queue, again.texts, messages.append) as loop:
        assert loop.summary()["curve"][0] == summary["curve"][0]
        until(lambda: loop.summary()["has_guesses"])
    assert messages == []


def test_the_page_says_that_a_fit_is_there_once_its_estimate_shows(reopen, topics, monkeypatch):
    opened = reopen(classes=tuple(sorted(set(topics.values()))))
    for _ in range(10):
        label_next(opened.session, topics)
    loop = ModelLoop(
        opened.session, opened.queue, opened.texts, print, apply=lambda model, task: model(task)
    )
    estimate = model_loop.estimate
    statuses = []

    def recorded(fit, sample):
        statuses.append(loop.summary()["status"])
        return estimate(fit, sample)

    monkeypatch.setattr(model_loop, "estimate", recorded)
    loop.work(None)
    loop.work(loop.due())

    assert statuses == ["learning from your 10 labels"]
    assert loop.summary()["status"].startswith("learned from 10 labels in ")


def names_of_guesses(loop: ModelLoop, opened: OpenedSession) -> set[str]:
    """The names of all classes that guesses list."""
    guesses = [loop.guess(text.key) for text in opened.texts]
    return {name for guess in guesses if guess for name, _ in guess.top}


@pytest.mark.parametrize("is_during_the_fit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_renamed_classes_have_renamed_guesses(reopen, topics, is_during_the_fit):
    """Also if the fit was made from labels with the name before."""
    opened = reopen(classes=tuple(sorted(set(topics.values()))))
    session = opened.session
    for _ in range(10):
        label_next(session, topics)

    def fit_and_rename(model: PoolModel, task: Task) -> Any:
        fit = model(task)
        if is_during_the_fit:
            session.rename_class("weather", "climate")
        return fit

    loop = ModelLoop(session, opened.queue, opened.texts, print, apply=fit_and_rename)
    loop.work(loop.due())
    if not is_during_the_fit:
        assert names_of_guesses(loop, opened) == {"küche", "sport", "weather"}
        session.rename_class("weather", "climate")

    assert names_of_guesses(loop, opened) == {"küche", "sport", "climate"}
    # The next fit learns from the new name, which is a text of the class.
    assert loop.due().class_names == ("küche", "sport", "climate")


def test_the_last_guesses_are_shown_until_the_next_process_has_fitted(reopen, topics):
    """Its page says what it learns from, and asks the text that the killed one has asked."""
    opened = reopen(classes=tuple(sorted(set(topics.values()))))
    loop = ModelLoop(
        opened.session, opened.queue, opened.texts, print, apply=lambda model, task: model(task)
    )
    for _ in range(10):
        label_next(opened.session, topics)
    loop.work(loop.due())
    for _ in range(2):
        label_next(opened.session, topics)
    opened.session.rename_class("weather", "climate")
    state = opened.session.state()

    again = reopen(classes=())
    statuses = []

    def fail(model: PoolModel, task: Task) -> Any:
        statuses.append((task, loop.summary()["status"]))
        raise MemoryError

    loop = ModelLoop(again.session, again.queue, again.texts, print, apply=fail)
    again.session.model = loop
    news = again.session.state()
    assert news["text"] == state["text"]
    assert [each["name"] for each in news["classes"]] == ["küche", "sport", "climate"]
    assert news["model"]["has_guesses"]
    assert names_of_guesses(loop, again) == {"küche", "sport", "climate"}

    loop._thread.wait_for = lambda find_work: None if statuses else find_work()
    loop._run()
    [(task, status)] = statuses
    assert len(task.texts) == 10
    assert status == "learning from your 10 labels"


def test_guesses_of_a_run_stay_right_when_its_classes_are_renamed(reopen, topics, trained_run):
    """They stay as long as fits are not right more often."""
    opened = reopen(classes=("küche", "sport", "weather"))
    session = opened.session
    loop = ModelLoop(
        session,
        opened.queue,
        opened.texts,
        print,
        classes_of_run=("küche", "sport", "weather"),
        apply=lambda model, task: model(task),
    )
    loop.work(trained_run.path)
    probabilities = [loop.guess(text.key).top[0][1] for text in opened.texts]
    for _ in range(30):
        label_next(session, topics)
    for name, new_name in (("küche", "food"), ("sport", "games"), ("weather", "climate")):
        session.rename_class(name, new_name)

    loop.work(loop.due())

    assert names_of_guesses(loop, opened) == {"food", "games", "climate"}
    assert [loop.guess(text.key).top[0][1] for text in opened.texts] == probabilities
    assert loop.estimate.accuracy > 0.9


def test_a_fit_that_fails_does_not_stop_the_labelling(reopen, topics, monkeypatch):
    class Killed(InThisProcess):
        def map(self, items: list) -> Iterator:
            raise MemoryError("a worker process was killed")

    monkeypatch.setattr(model_loop, "Workers", Killed)
    opened = reopen(classes=tuple(sorted(set(topics.values()))))
    messages: list[str] = []
    with ModelLoop(opened.session, opened.queue, opened.texts, messages.append) as loop:
        for _ in range(12):
            assert label_next(opened.session, topics) == "random"
        until(lambda: len(messages) >= 2)
        assert "could not be fitted" in loop.summary()["status"]
    assert len(read_table(Path("labels.csv"))) == 12
