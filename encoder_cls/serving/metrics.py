"""Counts of requests and predictions, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter as Counts
from collections import deque
from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

from encoder_cls.serving.request_queue import TextResult
from encoder_cls.system.display import replace_unprintable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The last texts, of which rates are shown: enough for whole percents.
RECENT_TEXTS = 1000
SECONDS_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUESTS_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counts of all requests, and rates of the last texts."""

    def __init__(self) -> None:
        self._recent: deque[TextResult] = deque(maxlen=RECENT_TEXTS)
        registry = CollectorRegistry()
        self._registry = registry
        ProcessCollector(registry=registry)

        self.requests = Counter(
            "encoder_cls_requests",
            "Requests by path and status.",
            ["path", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "encoder_cls_predict_seconds",
            "From a request's head to its predictions.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.batch_requests = Histogram(
            "encoder_cls_batch_requests",
            "Requests computed together.",
            buckets=REQUESTS_BUCKETS,
            registry=registry,
        )
        self.reloads = Counter(
            "encoder_cls_reloads", "Reloads of the model.", ["outcome"], registry=registry
        )
        self._texts = Counter("encoder_cls_texts", "Texts classified.", registry=registry)
        self._truncated = Counter(
            "encoder_cls_truncated_texts",
            "Texts longer than the encoder reads.",
            registry=registry,
        )
        self._words = Counter("encoder_cls_words", "Words read by the encoder.", registry=registry)
        self._unknown = Counter(
            "encoder_cls_unknown_words", "Words that training never saw.", registry=registry
        )
        self._labels = Counter(
            "encoder_cls_labels",
            "Texts by their most probable label, or their labels.",
            ["label"],
            registry=registry,
        )
        self._waiting = Gauge(
            "encoder_cls_waiting_requests", "Requests without a response.", registry=registry
        )
        self._info = Info("encoder_cls_model", "The model in use.", registry=registry)
        self._unknown_rate = Gauge(
            "encoder_cls_unknown_word_rate",
            f"Unknown words among the words of the last {RECENT_TEXTS} texts.",
            registry=registry,
        )
        self._label_rate = Gauge(
            "encoder_cls_label_rate",
            f"The part of the last {RECENT_TEXTS} texts with a label.",
            ["label"],
            registry=registry,
        )

    def count(self, results: Sequence[TextResult]) -> None:
        """Count the results of a request."""
        self._texts.inc(len(results))
        for result in results:
            self._words.inc(result.words)
            self._unknown.inc(result.record["unknown_words"])
            self._truncated.inc(result.record["truncated"])
            for label in result.labels:
                self._labels.labels(replace_unprintable(label)).inc()
        self._recent.extend(results)

    def text(self, *, waiting: int, model: str) -> bytes:
        """All counts in the text format.

        Args:
            waiting: the number of requests without a response.
            model: the SHA-256 of the model.
        """
        words = 0
        unknown_words = 0
        texts_by_label: Counts[str] = Counts()
        for result in self._recent:
            words += result.words
            unknown_words += result.record["unknown_words"]
            texts_by_label.update(replace_unprintable(label) for label in result.labels)

        self._unknown_rate.set(unknown_words / max(1, words))
        self._label_rate.clear()
        for label, texts in texts_by_label.items():
            self._label_rate.labels(label).set(texts / len(self._recent))
        self._waiting.set(waiting)
        self._info.info({"sha256": model})
        return generate_latest(self._registry)
