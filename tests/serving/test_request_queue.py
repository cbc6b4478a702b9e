"""The queue: what waits together is computed together, fairly, and nothing accepted is lost."""

from __future__ import annotations

import json
from concurrent.futures import Future
from threading import Event

import pytest
from support.predictions import predictions_for
from support.programs import TIME_LIMIT

from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.withholding import Withholding
from encoder_cls.serving import limits
from encoder_cls.serving.request_queue import Batcher, TextResult
from encoder_cls.serving.requests import PredictRequest
from encoder_cls.system.web.responses import RefusedError


class HeldClassifier:
    """A classifier that waits until it may go on, and notes the texts of each batch."""

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


# The text of the request that is computed while others wait.
FIRST_TEXT = "rain"


def ask(*texts: str, **options) -> PredictRequest:
    return PredictRequest(texts=list(texts), **options)


def results_of(futures: list[Future]) -> list[list[TextResult]]:
    """The results of requests."""
    return [future.result(TIME_LIMIT) for future in futures]


def labels_of(results: list[TextResult]) -> list[str]:
    return [result.record["label"] for result in results]


def printed_records(classifier, request: PredictRequest) -> list[dict]:
    """What `predict` prints of the texts of a request."""
    options = PredictionOptions(
        output_format="jsonl",
        top_k=request.top_k,
        withholding=Withholding(threshold=request.threshold),
        explained=request.explain,
    )
    lines = predictions_for(classifier, request.texts, options).splitlines()
    return [json.loads(line) for line in lines]


def submit_together(
    batcher: Batcher, held: HeldClassifier, requests: list[PredictRequest]
) -> list[Future]:
    """Submit requests that wait together while another one is computed; returns their futures."""
    first = batcher.submit(ask(FIRST_TEXT), held)
    assert held.begun.wait(TIME_LIMIT)

    futures = [batcher.submit(request, held) for request in requests]
    held.goes_on.set()
    assert labels_of(first.result(TIME_LIMIT)) == ["weather"]
    return futures


def test_requests_that_wait_are_computed_together(classifier):
    held = HeldClassifier(classifier)
    sizes = []
    requests = [
        ask("ball goal", "soup", top_k=2),
        ask("", threshold=1),
        ask("snow and rain", explain=True),
    ]

    all_results = results_of(submit_together(Batcher(sizes.append), held, requests))

    assert held.batches == [[FIRST_TEXT], ["ball goal", "soup", "", "snow and rain"]]
    assert sizes == [1, 3]
    assert [result.num_words for result in all_results[0]] == [2, 1]
    for request, results in zip(requests, all_results, strict=True):
        for printed, result in zip(printed_records(classifier, request), results, strict=True):
            assert result.record.keys() == printed.keys()
            assert result.record["label"] == printed["label"]
            expected = pytest.approx(printed["probability"], abs=1e-5)
            assert result.record["probability"] == expected


def test_a_long_request_is_cut_so_that_short_ones_come_between(classifier, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_CHARACTERS", 20)
    held = HeldClassifier(classifier)
    long = ask("rain snow", "ball goal", "soup bread", "wind frost")
    short = ask("snow")

    of_long, of_short = results_of(submit_together(Batcher(), held, [long, short]))

    assert labels_of(of_long) == ["weather", "sport", "küche", "weather"]
    assert labels_of(of_short) == ["weather"]
    assert held.batches == [
        [FIRST_TEXT],
        ["rain snow", "snow"],
        ["ball goal"],
        ["soup bread"],
        ["wind frost"],
    ]


def test_a_batch_has_one_text_to_explain(classifier):
    held = HeldClassifier(classifier)
    requests = [
        ask("rain snow", "wind", explain=True),
        ask("ball", explain=True),
        ask("soup"),
    ]

    all_results = results_of(submit_together(Batcher(), held, requests))

    assert [len(results) for results in all_results] == [2, 1, 1]
    assert held.batches[1] == ["rain snow", "soup"]
    assert sorted(held.batches[2:]) == [["ball"], ["wind"]]


def test_a_request_without_texts_gets_a_response(classifier):
    held = HeldClassifier(classifier)

    futures = submit_together(Batcher(), held, [ask(), ask(explain=True)])

    assert results_of(futures) == [[], []]


def test_a_failure_is_that_of_one_request(classifier):
    held = HeldClassifier(classifier, fails_on="bad")
    batcher = Batcher()

    good, bad = submit_together(batcher, held, [ask("snow"), ask("bad")])

    with pytest.raises(RefusedError, match=r"MemoryError: no more$") as refused:
        bad.result(TIME_LIMIT)
    assert refused.value.status == 500
    assert labels_of(good.result(TIME_LIMIT)) == ["weather"]

    later = batcher.submit(ask("ball"), held)
    assert labels_of(later.result(TIME_LIMIT)) == ["sport"]
    assert batcher.thread.is_alive()


def test_the_queue_has_an_end(classifier, monkeypatch):
    """Beyond it requests are refused; those in it get their results, which makes room."""
    monkeypatch.setattr(limits, "MAX_WAITING", 2)
    held = HeldClassifier(classifier)
    batcher = Batcher()
    futures = [batcher.submit(ask("rain"), held), batcher.submit(ask("snow"), held)]

    with pytest.raises(RefusedError, match="wait already") as refused:
        batcher.submit(ask("ball"), held)

    assert refused.value.status == 429

    held.goes_on.set()
    assert all(results_of(futures))
    assert batcher.submit(ask("ball"), held).result(TIME_LIMIT)


def test_a_response_is_that_of_one_model(classifier):
    """A request that comes after the model was replaced is computed apart."""
    old = HeldClassifier(classifier)
    new = HeldClassifier(classifier)
    new.goes_on.set()

    batcher = Batcher()
    first = batcher.submit(ask("soup"), old)
    assert old.begun.wait(TIME_LIMIT)
    by_old = batcher.submit(ask("rain", "snow"), old)
    by_new = batcher.submit(ask("ball", "goal"), new)
    old.goes_on.set()

    assert all(results_of([first, by_old, by_new]))
    assert old.batches == [["soup"], ["rain", "snow"]]
    assert new.batches == [["ball", "goal"]]
