"""A prediction as the JSON object that `predict --format jsonl` prints and the server answers with."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from encoder_cls.inference.classifier import Prediction

if TYPE_CHECKING:
    from encoder_cls.inference.explain import Explanation


def json_record(
    prediction: Prediction,
    *,
    top_k: int,
    threshold: float,
    set_threshold: float | None = None,
    words: Explanation | None = None,
) -> dict[str, Any]:
    """A prediction as JSON; arguments as in `Request` of `answers`, and `words` where an explanation was asked for.

    Multi-label, no fewer classes are named than the text has labels.
    """
    labels = prediction.labels_from(threshold)
    named = [] if prediction.reason else prediction.top(max(top_k, len(labels)))
    answer: dict[str, Any] = {"labels": list(labels)}
    if not prediction.is_multi_label:
        answer = {"label": prediction.label_from(threshold), "probability": prediction.probability}
    record: dict[str, Any] = {
        **answer,
        "top": [{"label": name, "probability": probability} for name, probability in named],
        **({} if set_threshold is None else {"set": prediction.label_set(set_threshold)}),
        "truncated": prediction.truncated,
        "unknown_words": prediction.unknown_words,
    }
    if prediction.unfamiliar is not None:
        record["unfamiliar"] = prediction.unfamiliar
    if prediction.reason:
        record["reason"] = prediction.reason
    if words is not None:
        record["explanation"] = [asdict(word) for word in words]
        if words.left_out:
            record["explanation_left_out"] = words.left_out
    return record
