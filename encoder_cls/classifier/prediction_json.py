"""A prediction as the JSON that `predict --format jsonl` prints and the server responds with."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from encoder_cls.classifier.explanation import Explanation
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.classifier.withholding import NOTHING, Answer, Withholding


def prediction_json(
    prediction: Prediction,
    *,
    top_k: int,
    withholding: Withholding = NOTHING,
    words: Explanation | None = None,
) -> dict[str, Any]:
    """The JSON values of a prediction.

    `top` has the `top_k` most probable classes, but at least all that reach the threshold or are
    kept. Where whole texts are withheld, `labels` is null, and `probability` is that of the whole
    prediction.
    """
    answer = withholding.answer(prediction)
    if prediction.labels is None:
        record = _label_json(prediction, answer)
    else:
        record = _labels_json(prediction, answer, withholding)

    num_shown = max(top_k, len(answer.labels))
    if withholding.threshold is not None:
        num_shown = max(num_shown, len(prediction.names_from(withholding.threshold)))
    top = [] if prediction.reason else prediction.top(num_shown)
    record["top"] = [
        {"label": label, **_name(prediction, label), "probability": probability}
        for label, probability in top
    ]
    if withholding.set_threshold is not None:
        record["set"] = prediction.label_set(withholding.set_threshold)

    record["truncated"] = prediction.truncated
    record["unknown_words"] = prediction.unknown_words
    if prediction.answered_by is not None:
        record["answered_by"] = prediction.answered_by
    if prediction.unfamiliar is not None:
        record["unfamiliar"] = prediction.unfamiliar
    if prediction.reason is not None:
        record["reason"] = prediction.reason

    if words is not None:
        record["explanation"] = [asdict(word) for word in words]
        if words.left_out:
            record["explanation_left_out"] = words.left_out
    return record


def _name(prediction: Prediction, label: str) -> dict[str, str]:
    name = prediction.name_of(label)
    return {} if name is None else {"name": name}


def _label_json(prediction: Prediction, answer: Answer) -> dict[str, Any]:
    label = answer.labels[0] if answer.labels else None
    record: dict[str, Any] = {"label": label}
    if label is not None:
        record |= _name(prediction, label)
    record["probability"] = prediction.probability
    if prediction.codes is not None and prediction.codes.has_levels:
        path = prediction.path if label is not None else []
        record["path"] = [code._asdict() for code in path]
    return record


def _labels_json(
    prediction: Prediction, answer: Answer, withholding: Withholding
) -> dict[str, Any]:
    record: dict[str, Any] = {"labels": list(answer.labels)}
    if withholding.text_threshold is not None and not prediction.reason:
        if answer.is_withheld:
            record["labels"] = None
        record["probability"] = prediction.prediction_probability

    if withholding.names_withheld_labels:
        record["withheld_labels"] = list(answer.withheld_labels)
    return record
