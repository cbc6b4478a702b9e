"""Predictions as an HTML page with coloured words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from encoder_cls.bulk.plain_text_format import notes_on, shown_labels
from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_format import Output, RowFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.system.row_text import readable

# The number of rows of a page whose words are coloured without `--explain`: to explain a text takes
# about as long as to classify 20 texts.
MAX_EXPLAINED_ROWS = 1000
# The number of rows of a page from which a warning says that browsers take long to open it.
MANY_ROWS = 50_000


class PageFormat(RowFormat):
    """An HTML page; without `--explain`, its first `MAX_EXPLAINED_ROWS` rows are explained.

    Codes above the classes are not.
    """

    def __init__(self, options: PredictionOptions, classifier: Classifier) -> None:
        self._set_threshold = options.withholding.set_threshold
        self._is_multi_label = classifier.is_multi_label
        if options.answers_classes and not options.explained:
            self.num_explained = MAX_EXPLAINED_ROWS
        self._num_rows = 0
        self._model = ""
        if classifier.folder:
            self._model = f"{classifier.folder} ({classifier.sha256[:12]})"

    def encode(self, predicted_texts: Sequence[PredictedText]) -> list[bytes]:
        """Encode rows of HTML."""
        return [f"{self._row(predicted)}\n".encode() for predicted in predicted_texts]

    def _row(self, predicted: PredictedText) -> str:
        from encoder_cls.classifier.prediction_page import prediction_row

        prediction = predicted.prediction
        notes = notes_on(predicted, self._set_threshold)
        is_explained = predicted.words is not None and not prediction.reason
        if self._is_multi_label and is_explained:
            notes.append(f"words for and against {prediction.label}")
        return prediction_row(
            readable(predicted.row.text),
            prediction,
            predicted.words,
            label=shown_labels(predicted),
            notes=notes,
        )

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[Sequence[bytes]], object]]:
        """Write the page up to its rows, rows as they come, and the rest."""

        def write(rows: Sequence[bytes]) -> None:
            if not self._num_rows:
                page_start, _ = self._page_around_rows(num_first_rows=len(rows))
                output.write(page_start.encode())
            self._num_rows += len(rows)
            output.write(b"".join(rows))

        yield write

        page_start, page_end = self._page_around_rows(num_first_rows=0)
        if not self._num_rows:
            output.write(page_start.encode())
        output.write(f"{page_end}\n".encode())

    def _page_around_rows(self, *, num_first_rows: int) -> tuple[str, str]:
        from encoder_cls.classifier.prediction_page import page_around_rows

        note = ""
        if num_first_rows and num_first_rows == self.num_explained:
            note = f"Words have colours in the first {num_first_rows:,} rows."
        return page_around_rows(is_multi_label=self._is_multi_label, note=note, model=self._model)

    def warnings(self) -> Iterator[str]:
        """Warn of rows without colours, and of very many rows."""
        if self._num_rows > self.num_explained > 0:
            yield (
                f"words have colours in the first {self.num_explained:,} of {self._num_rows:,} "
                "rows; --explain colours all, which takes longer"
            )
        if self._num_rows > MANY_ROWS:
            yield (
                f"warning: a page of {self._num_rows:,} rows, which browsers take long to open; "
                "spreadsheets open .xlsx"
            )
