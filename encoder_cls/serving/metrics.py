"""The metrics of the server in the text format of Prometheus."""

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
# The number of the last texts from which rates are computed; enough for precise percentages.
RECENT_TEXTS = 1000
SECONDS_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUESTS_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONFIDENCE_BUCKETS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 1)


class Metrics:
    """Counts of all requests and texts, and rates among the last `RECENT_TEXTS`."""

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
        self._unfamiliar = Counter(
            "encoder_cls_unfamiliar_texts",
            "Texts unlike those of training, if the model measures it.",
            registry=registry,
        )
        self._confidence = Histogram(
            "encoder_cls_confidence",
            "The probabilities that predictions are correct.",
            buckets=CONFIDENCE_BUCKETS,
            registry=registry,
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
        """Add the results of a request."""
        self._texts.inc(len(results))
        for result in results:
            self._words.inc(result.num_words)
            self._unknown.inc(result.record["unknown_words"])
            self._truncated.inc(result.record["truncated"])
            self._unfamiliar.inc(result.record.get("unfamiliar", False))
            if result.confidence is not None:
                self._confidence.observe(result.confidence)
            for label in result.labels:
                self._labels.labels(replace_unprintable(label)).inc()
        self._recent.extend(results)

    def text(self, *, num_waiting: int, model_sha256: str) -> bytes:
        """Write all metrics for Prometheus."""
        num_words = 0
        num_unknown_words = 0
        texts_by_label: Counts[str] = Counts()
        for result in self._recent:
            num_words += result.num_words
            num_unknown_words += result.record["unknown_words"]
            texts_by_label.update(replace_unprintable(label) for label in result.labels)

        self._unknown_rate.set(num_unknown_words / max(1, num_words))
        # Remove labels that none of the last texts has.
        self._label_rate.clear()
        for label, num_texts in texts_by_label.items():
            self._label_rate.labels(label).set(num_texts / len(self._recent))
        self._waiting.set(num_waiting)
        self._info.info({"sha256": model_sha256})
        return generate_latest(self._registry)
