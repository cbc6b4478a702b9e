"""The rows of a source with their predictions, for programs that do something else with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from encoder_cls.bulk.input_size import choose_engine
from encoder_cls.bulk.input_texts import CHUNK, LABELS_ARE_TEXT, size_of
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.prediction import Prediction
from encoder_cls.data.reading.columns import Columns
from encoder_cls.data.reading.reading import Reading
from encoder_cls.data.reading.rows import Row
from encoder_cls.data.reading.text_lines import LABEL_PREFIX
from encoder_cls.data.source_files import files_named
from encoder_cls.data.sources import read_rows
from encoder_cls.system.lazy_sequences import in_chunks


def predicted_rows(
    classifier: Classifier,
    source: str,
    *,
    text_columns: Sequence[str] = (),
    reading: Reading | None = None,
    wanted: Callable[[Row], bool] = lambda _: True,
) -> Iterator[tuple[Row, Prediction]]:
    """Predict the rows of files that are `wanted`, in order, with a progress bar.

    Rows have all columns. Files are read as in the training by default, and no more rows are in
    memory than are predicted at once.

    Raises:
        DataError: the source is missing or malformed.
    """
    columns = Columns(
        text_columns or classifier.text_format.columns, every=True, features=classifier.features
    )
    reading = reading or Reading(classifier.text_format.reading)
    files = files_named(source)
    choose_engine(classifier, size_of(files))

    with Progress(files, doing="classified") as progress:
        # A note appears above the bar, and all are in the caller's reading.
        noting = replace(reading, notify=progress.note)
        for chunk in in_chunks(read_rows(source, columns, noting), CHUNK):
            if chunk[0].text.startswith(LABEL_PREFIX):
                noting.note(f"warning: {chunk[0].where.file}: {LABELS_ARE_TEXT}")

            rows = [row for row in chunk if wanted(row)]
            if rows:
                tokenized = classifier.tokenize(row.text for row in rows)
                predictions = classifier.predict_tokenized(tokenized)
                yield from zip(rows, predictions, strict=True)
            progress.done(chunk[-1].where, len(chunk))
