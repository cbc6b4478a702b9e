"""Classify a chunk of rows, and apply the options of `predict` to the predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from encoder_cls.bulk.input_texts import Chunk
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.explanation import Explanation
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.classifier.withholding import Answer
from encoder_cls.data.reading.rows import Row
from encoder_cls.system.json_values import is_missing
from encoder_cls.system.label_cells import cell_separator, joined_labels
from encoder_cls.text.tokenizer import count_tokens


class PredictedText(NamedTuple):
    """A row with its prediction.

    Attributes:
        row: with `--fill`, its column has the answer if its cell was empty.
        words: None if not explained.
        length: the tokens of a truncated text, and whether all were counted; None if it is not
            truncated or the format does not show it.
    """

    row: Row
    prediction: Prediction
    answer: Answer
    words: Explanation | None
    length: tuple[int, bool] | None


def predict_chunk(
    classifier: Classifier, options: PredictionOptions, chunk: Chunk, *, explained: bool
) -> list[PredictedText]:
    """Classify the rows of a chunk, and explain them if asked to."""
    texts = [row.text for row in chunk]
    tokenized = classifier.tokenize(texts)
    predictions = classifier.predict_tokenized(tokenized, batch_tokens=options.batch_tokens)

    explanations: Sequence[Explanation | None] = [None] * len(chunk)
    if explained:
        best_labels = [prediction.label for prediction in predictions]
        explanations = classifier.explain_tokenized(
            texts, tokenized, best_labels, batch_tokens=options.batch_tokens
        )

    predicted_texts = []
    for row, of_classes, words in zip(chunk, predictions, explanations, strict=True):
        prediction = options.withholding.at_level(of_classes)
        answer = options.withholding.answer(prediction)

        length = None
        if prediction.truncated and options.output_format == "text":
            length = count_tokens(classifier.tokenizer, row.text)

        if options.fill is not None:
            cell = _cell_of(answer.labels, classifier, options)
            row = _filled(row, options.fill, cell)  # noqa: PLW2901

        predicted_text = PredictedText(
            row=row,
            prediction=prediction,
            answer=answer,
            words=words,
            length=length,
        )
        predicted_texts.append(predicted_text)
    return predicted_texts


def _cell_of(
    labels: tuple[str, ...], classifier: Classifier, options: PredictionOptions
) -> str | list[str] | None:
    """What a person would write into a cell: in a table, labels are one text."""
    if not classifier.is_multi_label:
        return labels[0] if labels else None
    if options.output_format == "jsonl":
        return list(labels)
    separator = cell_separator(classifier.label_names, classifier.text_format.label_separator)
    return joined_labels(labels, separator)


def _filled(row: Row, column: str, cell: str | list[str] | None) -> Row:
    record = dict(row.record or {})
    value = record.setdefault(column, None)
    if is_missing(value) or value == "":
        record[column] = value if cell is None else cell
    return row._replace(record=record)
