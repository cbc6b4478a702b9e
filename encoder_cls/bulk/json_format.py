"""Predictions as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence

from encoder_cls.bulk.input_texts import ColumnTypes
from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_format import LineFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.table_columns import prediction_column
from encoder_cls.classifier.prediction_json import prediction_json
from encoder_cls.system.json_values import json_text, record_text


class JsonFormat(LineFormat):
    """Lines of JSON, with the columns of the input if its rows come with them."""

    def __init__(self, options: PredictionOptions, columns: ColumnTypes) -> None:
        self._options = options
        self._columns = columns

    def lines(self, predicted_texts: Sequence[PredictedText]) -> list[str]:
        """Write predictions as objects."""
        return [self._line(predicted) for predicted in predicted_texts]

    def _line(self, predicted: PredictedText) -> str:
        row = predicted.row
        options = self._options
        record = prediction_json(
            predicted.prediction,
            top_k=options.top_k,
            withholding=options.withholding,
            words=predicted.words,
        )

        if row.record is None:
            if row.id is not None:
                record = {"id": row.id, **record}
            return json_text(record)

        # Avoid the names of all known columns, not only the names in this row, so that a key of
        # the prediction has the same name in all lines.
        taken = self._columns.keys() | row.record.keys()
        merged = dict(row.record)
        for name, value in record.items():
            merged[prediction_column(name, taken)] = value
        return record_text(merged)
