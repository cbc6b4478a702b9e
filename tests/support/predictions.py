"""Predictions for rows, or for a source, without the command line of `predict`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from encoder_cls.bulk.chunk_classifier import ChunkClassifier
from encoder_cls.bulk.input_texts import InputTexts
from encoder_cls.bulk.prediction_loop import predict_texts
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.request import Request
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.rows import Row
from encoder_cls.system.terminal import note


class GivenRows(InputTexts):
    """Rows that a test has made, in one chunk."""

    def __init__(self, classifier: Classifier, rows: Sequence[Row]) -> None:
        super().__init__(Request(), classifier)
        self._rows = list(rows)

    def chunks(self, notify: Callable[[str], None] = note) -> Iterator[Sequence[Row]]:
        """All rows at once."""
        if self._rows:
            yield self._rows


def predictions_for(
    classifier: Classifier,
    texts: Sequence[str | Row],
    options: PredictionOptions,
    *,
    on_terminal: bool = False,
    warn: Callable[[str], None] = note,
) -> str:
    """What `predict` prints for texts, or for rows."""
    rows = []
    for text in texts:
        row = text if isinstance(text, Row) else Row(text)
        rows.append(row)

    output = io.BytesIO()
    predict_texts(
        GivenRows(classifier, rows),
        output,
        ChunkClassifier(classifier, options, warn=warn),
        Progress([], doing="classified"),
        on_terminal=on_terminal,
    )
    return output.getvalue().decode()


def texts_of(classifier: Classifier, source: str) -> list[str]:
    """The texts of a source, as they are classified."""
    texts = []
    for chunk in InputTexts(Request(source=source), classifier).chunks():
        texts += [row.text for row in chunk]
    return texts
