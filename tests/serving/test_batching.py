"""The queue: what waits together is computed together, fairly, and nothing accepted is lost."""

from __future__ import annotations

import json
from threading import Event

import pytest
from support.predictions import predictions_for
from support.programs import TIME_LIMIT

from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.serving import limits
from encoder_cls.serving.batching import Batcher, TextResult
from encoder_cls.serving.requests import PredictRequest, RefusedError


class Held:
    """A classifier that waits until it is let go, and notes the texts of each batch."""

    def __init__(self, classifier, *, fails_on: str | None = None) -> None:
        self._classifier = classifier
        self._fails_on = fails_on
        self.sha256 = "hash"
        self.label_names = classifier.label_names
        self.goes_on = Event()
        self.begun = Event()
        self.batches = []

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


def records(predictions: list[TextResult]) -> list[dict]:
    return [prediction.record for prediction in predictions]


def printed_records(classifier, request: PredictRequest) -> list[dict]:
    """What `predict` prints of the texts of a request."""
    options = PredictionOptions(
        output_format="jsonl",
        top_k=request.top_k,
        threshold=request.threshold,
        explained=request.explain,
    )
    lines = predictions_for(classifier, request.texts, options).splitlines()
    return [json.loads(line) for line in lines]


def submitted(batcher: Batcher, held: Held, *requests: PredictRequest) -> list:
    """The futures of requests, of which all but the first waited for it together."""
    first = batcher.submit(requests[0], held)
    assert held.begun.wait(TIME_LIMIT)
    others = [batcher.submit(request, held) for request in requests[1:]]
    held.goes_on.set()
    return [first, *others]


def test_what_waits_is_computed_together(classifier):
    held = Held(classifier)
    sizes = []
    requests = [
        ask("rain"),
        ask("ball goal", "soup", top_k=2),
        ask("", threshold=1),
        ask("snow and rain", explain=True),
    ]

    futures = submitted(Batcher(sizes.append), held, *requests)
    predictions = [future.result(TIME_LIMIT) for future in futures]

    assert held.batches == [["rain"], ["ball goal", "soup", "", "snow and rain"]]
    assert sizes == [1, 3]
    for request, prediction in zip(requests, predictions, strict=True):
        expected = printed_records(classifier, request)
        for printed, record in zip(expected, records(prediction), strict=True):
            assert record.keys() == printed.keys()
            assert record["label"] == printed["label"]
            assert record["probability"] == pytest.approx(printed["probability"], abs=1e-5)
    assert [prediction.words for prediction in predictions[1]] == [2, 1]


def test_a_long_request_is_cut_so_that_short_ones_come_between(classifier, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_CHARACTERS", 20)
    held = Held(classifier)
    long = ["rain snow", "ball goal", "soup bread", "wind frost"]

    _, prediction, short = submitted(Batcher(), held, ask("rain"), ask(*long), ask("snow"))

    labels = [record["label"] for record in records(prediction.result(TIME_LIMIT))]
    assert labels == ["weather", "sport", "küche", "weather"]
    assert short.result(TIME_LIMIT)
    assert held.batches == [
        ["rain"],
        ["rain snow", "snow"],
        ["ball goal"],
        ["soup bread"],
        ["wind frost"],
    ]


def test_a_batch_has_one_text_to_explain(classifier):
    held = Held(classifier)
    explained = [ask("rain snow", "wind", explain=True), ask("ball", explain=True)]

    futures = submitted(Batcher(), held, ask("rain"), *explained, ask("soup"))

    assert all(future.result(TIME_LIMIT) for future in futures)
    assert held.batches[1] == ["rain snow", "soup"]
    assert sorted(held.batches[2:]) == [["ball"], ["wind"]]


def test_a_request_without_texts_gets_a_response(classifier):
    held = Held(classifier)

    futures = submitted(Batcher(), held, ask("rain"), ask(), ask(explain=True))

    assert [len(future.result(TIME_LIMIT)) for future in futures] == [1, 0, 0]


def test_a_failure_is_that_of_one_request(classifier):
    held = Held(classifier, fails_on="bad")
    batcher = Batcher()

    fine, other, bad = submitted(batcher, held, ask("rain"), ask("snow"), ask("bad"))

    with pytest.raises(RefusedError, match=r"MemoryError: no more$") as refused:
        bad.result(TIME_LIMIT)
    assert refused.value.status == 500
    later = batcher.submit(ask("ball"), held)
    labels = [future.result(TIME_LIMIT)[0].labels for future in (fine, other, later)]
    assert labels == [("weather",), ("weather",), ("sport",)]
    assert batcher.thread.is_alive()


def test_the_queue_has_an_end(classifier, monkeypatch):
    """Beyond it requests are refused; those in it are answered, which makes room."""
    monkeypatch.setattr(limits, "MOST_WAITING", 2)
    held = Held(classifier)
    batcher = Batcher()
    futures = [batcher.submit(ask("rain"), held), batcher.submit(ask("snow"), held)]

    with pytest.raises(RefusedError, match="wait already") as refused:
        batcher.submit(ask("ball"), held)

    assert refused.value.status == 429
    held.goes_on.set()
    assert all(future.result(TIME_LIMIT) for future in futures)
    batcher.submit(ask("ball"), held).result(TIME_LIMIT)


def test_a_response_is_that_of_one_model(classifier):
    """A request that comes after the model was replaced is computed apart."""
    old = Held(classifier)
    new = Held(classifier)
    new.goes_on.set()
    batcher = Batcher()
    first = batcher.submit(ask("soup"), old)
    assert old.begun.wait(TIME_LIMIT)

    by_old = batcher.submit(ask("rain", "snow"), old)
    by_new = batcher.submit(ask("ball", "goal"), new)
    old.goes_on.set()

    assert all(future.result(TIME_LIMIT) for future in (first, by_old, by_new))
    assert old.batches == [["soup"], ["rain", "snow"]]
    assert new.batches == [["ball", "goal"]]
