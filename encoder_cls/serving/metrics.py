"""What the server counts, in the text format of Prometheus: requests, texts, labels, unknown words.

Whether texts have become other ones than those of training is seen in two rates: that of unknown words, and that of
each label.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from encoder_cls.serving.batching import Answer
from encoder_cls.system.display import replace_unprintable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RECENT_TEXTS = 1000  # of which rates are given: enough for whole percents
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counts of a server.

    Args:
        waiting: tells how many requests have no answer yet.
        model: tells the SHA-256 of the model that answers.
    """

    def __init__(self, *, waiting: Callable[[], int], model: Callable[[], str]) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "encoder_cls_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "encoder_cls_predict_seconds",
            "From a request's head to its predictions.",
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_requests = Histogram(
            "encoder_cls_batch_requests", "Requests computed together.", buckets=REQUESTS, registry=registry
        )
        self.reloads = Counter("encoder_cls_reloads", "Reloads of the model.", ["outcome"], registry=registry)
        self._texts = Counter("encoder_cls_texts", "Texts answered.", registry=registry)
        self._truncated = Counter(
            "encoder_cls_truncated_texts", "Texts longer than the encoder reads.", registry=registry
        )
        self._words = Counter("encoder_cls_words", "Words read by the encoder.", registry=registry)
        self._unknown = Counter("encoder_cls_unknown_words", "Words that training never saw.", registry=registry)
        self._labels = Counter(
            "encoder_cls_labels", "Texts by their most probable label, or their labels.", ["label"], registry=registry
        )
        self._recent: deque[tuple[tuple[str, ...], int, int]] = deque(maxlen=RECENT_TEXTS)
        registry.register(_Now(self._recent, waiting=waiting, model=model))

    def count(self, answer: Answer) -> None:
        """Count what was said to a request."""
        self._texts.inc(len(answer.records))
        for record, labels, words in zip(answer.records, answer.labels, answer.words, strict=True):
            for label in labels:
                self._labels.labels(replace_unprintable(label)).inc()
            self._words.inc(words)
            self._unknown.inc(record["unknown_words"])
            self._truncated.inc(record["truncated"])
            self._recent.append((labels, words, record["unknown_words"]))

    def text(self) -> bytes:
        """All counts as Prometheus reads them."""
        return generate_latest(self._registry)


class _Now(Collector):
    """What is computed when it is asked for."""

    def __init__(
        self,
        recent: Iterable[tuple[tuple[str, ...], int, int]],
        *,
        waiting: Callable[[], int],
        model: Callable[[], str],
    ) -> None:
        self._recent, self._waiting, self._model = recent, waiting, model

    def collect(self) -> Iterator[Metric]:
        """The queue, the model, and the rates of the last texts."""
        yield GaugeMetricFamily("encoder_cls_waiting_requests", "Requests without an answer.", value=self._waiting())
        yield InfoMetricFamily("encoder_cls_model", "The model that answers.", value={"sha256": self._model()})
        recent = list(self._recent)
        words, unknown = sum(item[1] for item in recent), sum(item[2] for item in recent)
        yield GaugeMetricFamily(
            "encoder_cls_unknown_word_rate",
            f"Unknown words among the words of the last {RECENT_TEXTS} texts.",
            value=unknown / max(1, words),
        )
        rates = GaugeMetricFamily(
            "encoder_cls_label_rate", f"The part of the last {RECENT_TEXTS} texts with a label.", labels=["label"]
        )
        for label, number in Counts(replace_unprintable(label) for item in recent for label in item[0]).items():
            rates.add_metric([label], number / len(recent))
        yield rates
