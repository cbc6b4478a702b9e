"""The counts of the server in Prometheus' text format.

The rates of unknown words and of each label show when texts are no longer like those of training.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from encoder_cls.serving.batching import Answer, TextAnswer
from encoder_cls.system.display import replace_unprintable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RECENT_TEXTS = 1000  # for rates: enough for whole percents
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics(Collector):
    """Counts, and on each `collect` the number of `waiting` requests, the `model`'s SHA-256 and the recent rates."""

    def __init__(self, *, waiting: Callable[[], int], model: Callable[[], str]) -> None:
        self._waiting, self._model = waiting, model
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
        self._registry.register(self)

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
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Compute what no event counts."""
        yield GaugeMetricFamily("encoder_cls_waiting_requests", "Requests without an answer.", value=self._waiting())
        yield InfoMetricFamily("encoder_cls_model", "The model that answers.", value={"sha256": self._model()})
        recent = list(self._recent)
        unknown = sum(text.record["unknown_words"] for text in recent)
        yield GaugeMetricFamily(
            "encoder_cls_unknown_word_rate",
            f"Unknown words among the words of the last {RECENT_TEXTS} texts.",
            value=unknown / max(1, sum(text.words for text in recent)),
        )
        help_text = f"The part of the last {RECENT_TEXTS} texts with a label."
        rates = GaugeMetricFamily("encoder_cls_label_rate", help_text, labels=["label"])
        for label, number in Counts(replace_unprintable(label) for text in recent for label in text.labels).items():
            rates.add_metric([label], number / len(recent))
        yield rates

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"encoder_cls_{name}", help_text, labels, registry=self._registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"encoder_cls_{name}", help_text, buckets=buckets, registry=self._registry)
