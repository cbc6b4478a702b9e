"""Predictions as an HTML page with coloured words, and a page of attention maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from encoder_cls.bulk.json_and_csv_formats import Output, PredictionFormat
from encoder_cls.bulk.plain_text_format import NO_LABEL, notes_on
from encoder_cls.bulk.predicted_text import PredictedText
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.classifier.attention_maps import attention_maps
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.metrics.logits import MULTI_LABEL


class PageFormat(PredictionFormat):
    """An HTML page with a row for each prediction.

    Args:
        options: what the predictions contain.
        classifier: the classifier that makes the predictions.
        note: which texts the page shows, such as "the first 1,000 texts"; None if it shows all.
    """

    def __init__(
        self, options: PredictionOptions, classifier: Classifier, note: str | None
    ) -> None:
        self._set_threshold = options.set_threshold
        self._is_multi_label = classifier.task is MULTI_LABEL
        self._note = note
        self._model = ""
        if classifier.folder:
            self._model = f"{classifier.folder} ({classifier.sha256[:12]})"

    def encode(self, predicted_texts: Sequence[PredictedText]) -> str:
        """The HTML rows of the predictions for a chunk."""
        return "".join(f"{self._row(predicted)}\n" for predicted in predicted_texts)

    def _row(self, predicted: PredictedText) -> str:
        from encoder_cls.classifier.prediction_page import prediction_row

        prediction = predicted.prediction
        assert predicted.words is not None
        notes = notes_on(predicted, self._set_threshold)
        if predicted.labels is None:
            label = predicted.label or "?"
        else:
            label = ", ".join(predicted.labels) or NO_LABEL
            if not prediction.reason:
                notes.append(f"words for and against {prediction.label}")
        return prediction_row(
            predicted.row.text, prediction, predicted.words, label=label, notes=notes
        )

    @contextmanager
    def writing_to(self, output: Output) -> Iterator[Callable[[str], object]]:
        """Collect the rows of all chunks, and write the page at the end of the block."""
        from encoder_cls.classifier.prediction_page import render_predictions

        rows: list[str] = []
        yield rows.append

        page = render_predictions(
            "".join(rows),
            is_multi_label=self._is_multi_label,
            note=self._note,
            model=self._model,
        )
        output.write(f"{page}\n".encode())


def attention_page(classifier: Classifier, texts: Sequence[str]) -> bytes:
    """Make an HTML page with the attention maps of some texts, in UTF-8."""
    from encoder_cls.classifier.attention_page import render_attention

    headings = []
    for text, prediction in zip(texts, classifier.predict(texts), strict=True):
        # A text without a prediction has the reason in place of the label.
        label = prediction.reason
        if prediction.label:
            label = f"{prediction.label} {prediction.probability:.3f}"
        headings.append(f"{label}: {text}")

    # A generator, so that only the maps of one text are in memory at a time.
    maps = (attention_maps(classifier, text) for text in texts)
    page = render_attention("Attention", zip(headings, maps, strict=True))
    return page.encode("utf-8", "replace")
