"""The counts of the server in Prometheus' text format.

The rates of unknown words and of each label show when texts are no longer like those of training.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from encoder_cls.serving.batching import Answer, TextAnswer
from encoder_cls.system.display import replace_unprintable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RECENT_TEXTS = 1000  # for rates: enough for whole percents
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts, and on each `text` the number of `waiting` requests, the `model`'s SHA-256 and the recent rates."""

    def __init__(self, *, waiting: Callable[[], int], model: Callable[[], str]) -> None:
        self._model = model
        self._recent: deque[TextAnswer] = deque(maxlen=RECENT_TEXTS)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.requests = self._counter("requests", "Requests by path and status.", "path", "status")
        self.seconds = self._histogram("predict_seconds", "From a request's head to its predictions.", SECONDS)
        self.batch_requests = self._histogram("batch_requests", "Requests computed together.", REQUESTS)
        self.reloads = self._counter("reloads", "Reloads of the model.", "outcome")
        self._texts = self._counter("texts", "Texts answered.")
        self._truncated = self._counter("truncated_texts", "Texts longer than the encoder reads.")
        self._words = self._counter("words", "Words read by the encoder.")
        self._unknown = self._counter("unknown_words", "Words that training never saw.")
        self._labels = self._counter("labels", "Texts by their most probable label, or their labels.", "label")
        self._gauge("waiting_requests", "Requests without an answer.").set_function(waiting)
        self._info = Info("encoder_cls_model", "The model that answers.", registry=self._registry)
        of_last = f"of the last {RECENT_TEXTS} texts"
        self._unknown_rate = self._gauge("unknown_word_rate", f"Unknown words among the words {of_last}.")
        self._label_rate = self._gauge("label_rate", f"The part {of_last} with a label.", "label")

    def count(self, answer: Answer) -> None:
        """Count the answers to a request."""
        self._texts.inc(len(answer.texts))
        for text in answer.texts:
            for label in text.labels:
                self._labels.labels(replace_unprintable(label)).inc()
            self._words.inc(text.words)
            self._unknown.inc(text.record["unknown_words"])
            self._truncated.inc(text.record["truncated"])
        self._recent += answer.texts

    def text(self) -> bytes:
        """All counts as Prometheus reads them."""
        recent = list(self._recent)
        unknown, words = sum(it.record["unknown_words"] for it in recent), sum(it.words for it in recent)
        self._unknown_rate.set(unknown / max(1, words))
        self._label_rate.clear()
        for label, number in Counts(replace_unprintable(label) for it in recent for label in it.labels).items():
            self._label_rate.labels(label).set(number / len(recent))
        self._info.info({"sha256": self._model()})
        return generate_latest(self._registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"encoder_cls_{name}", help_text, labels, registry=self._registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"encoder_cls_{name}", help_text, labels, registry=self._registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"encoder_cls_{name}", help_text, buckets=buckets, registry=self._registry)
