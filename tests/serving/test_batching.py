"""The queue: what waits together is computed together, in order, fairly, and nothing accepted is lost."""

from __future__ import annotations

import json
from threading import Event

import pytest
from encoder_cls.serving.requests import PredictRequest, RefusedError
from support.programs import TIME_LIMIT

from encoder_cls.bulk.classify_chunks import Answerer
from encoder_cls.bulk.inputs import Source
from encoder_cls.bulk.request import Request
from encoder_cls.serving import limits
from encoder_cls.serving.batching import Batcher, TextAnswer


class Held:
    """A classifier whose first answer waits until it is let go, and which notes the texts of each batch."""

    def __init__(self, classifier, *, fails_on: str | None = None) -> None:
        self._classifier, self._fails_on = classifier, fails_on
        self.sha256, self.label_names = "hash", classifier.label_names
        self.goes_on, self.begun, self.batches = Event(), Event(), []

    def tokenize(self, texts):
        self.batches.append(list(texts))
        self.begun.set()
        assert self.goes_on.wait(TIME_LIMIT)
        if self._fails_on in texts:
            raise MemoryError("no more\nat all")
        return self._classifier.tokenize(texts)

    def __getattr__(self, name):
        return getattr(self._classifier, name)


def ask(*texts: str, **options) -> PredictRequest:
    return PredictRequest(texts=list(texts), **options)


def records(answers: list[TextAnswer]) -> list[dict]:
    return [text.record for text in answers]


def submitted(batcher: Batcher, held: Held, *requests: PredictRequest) -> list:
    """The futures of requests, of which all but the first waited for it together."""
    first = batcher.submit(requests[0], held)
    assert held.begun.wait(TIME_LIMIT)
    others = [batcher.submit(request, held) for request in requests[1:]]
    held.goes_on.set()
    return [first, *others]


def test_what_waits_is_computed_together(classifier):
    held, sizes = Held(classifier), []
    asked = [
        ask("rain"),
        ask("ball goal", "soup", top_k=2),
        ask("", threshold=1),
        ask("snow and rain", explain=True),
    ]
    batcher = Batcher(sizes.append)
    answers = [future.result(TIME_LIMIT) for future in submitted(batcher, held, *asked)]
    assert held.batches == [["rain"], ["ball goal", "soup", "", "snow and rain"]]
    assert sizes == [1, 3]
    for request, answer in zip(asked, answers, strict=True):
        options = {
            "top_k": request.top_k,
            "threshold": request.threshold,
            "explained": request.explain,
        }
        same = Request("jsonl", tuple(request.texts), **options)
        lines = b"".join(Answerer(classifier, same).content(Source(same, classifier))).splitlines()
        for expected, record in zip(map(json.loads, lines), records(answer), strict=True):
            assert (record.keys(), record["label"]) == (expected.keys(), expected["label"])
            assert record["probability"] == pytest.approx(expected["probability"], abs=1e-5)
    assert [text.words for text in answers[1]] == [2, 1]


def test_a_long_request_is_cut_so_that_short_ones_come_between(classifier, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_CHARACTERS", 20)
    held = Held(classifier)
    long = ["rain snow", "ball goal", "soup bread", "wind frost"]
    _, answer, short = submitted(Batcher(), held, ask("rain"), ask(*long), ask("snow"))
    assert [record["label"] for record in records(answer.result(TIME_LIMIT))] == [
        "weather",
        "sport",
        "küche",
        "weather",
    ]
    assert short.result(TIME_LIMIT)
    assert held.batches == [["rain"], [*long[:1], "snow"], *([text] for text in long[1:])]


def test_a_failure_is_that_of_one_request(classifier):
    held, batcher = Held(classifier, fails_on="bad"), Batcher()
    fine, other, bad = submitted(batcher, held, ask("rain"), ask("snow"), ask("bad"))
    with pytest.raises(RefusedError, match=r"MemoryError: no more$") as refused:
        bad.result(TIME_LIMIT)
    assert refused.value.status == 500
    later = batcher.submit(ask("ball"), held)
    answers = [future.result(TIME_LIMIT)[0].labels for future in (fine, other, later)]
    assert answers == [("weather",), ("weather",), ("sport",)]
    assert batcher.thread.is_alive()


def test_the_queue_has_an_end(classifier, monkeypatch):
    """Beyond it requests are refused; those in it are answered, which makes room."""
    monkeypatch.setattr(limits, "MOST_WAITING", 2)
    held, batcher = Held(classifier), Batcher()
    futures = [batcher.submit(ask("rain"), held), batcher.submit(ask("snow"), held)]
    with pytest.raises(RefusedError, match="wait already") as refused:
        batcher.submit(ask("ball"), held)
    assert refused.value.status == 429
    held.goes_on.set()
    assert all(future.result(TIME_LIMIT) for future in futures)
    batcher.submit(ask("ball"), held).result(TIME_LIMIT)


def test_an_answer_is_that_of_one_model(classifier):
    """A request that comes after the model was replaced is computed apart."""
    old, new, batcher = Held(classifier), Held(classifier), Batcher()
    new.goes_on.set()
    futures = [batcher.submit(ask("soup"), old)]
    assert old.begun.wait(TIME_LIMIT)
    futures += [batcher.submit(ask("rain", "snow"), old), batcher.submit(ask("ball", "goal"), new)]
    old.goes_on.set()
    assert all(future.result(TIME_LIMIT) for future in futures)
    assert (old.batches, new.batches) == ([["soup"], ["rain", "snow"]], [["ball", "goal"]])
