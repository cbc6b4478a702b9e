"""The loop of `predict`: read a chunk of texts, classify it, and write the predictions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from encoder_cls.bulk.chunk_classifier import ChunkClassifier
from encoder_cls.bulk.html_format import PageFormat, attention_page
from encoder_cls.bulk.input_texts import Chunk, ColumnTypes, InputTexts, add_columns
from encoder_cls.bulk.json_and_csv_formats import (
    DelimitedFormat,
    JsonFormat,
    Output,
    PredictionFormat,
)
from encoder_cls.bulk.plain_text_format import PlainTextFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.rows import Row
from encoder_cls.system.files import write_output

# The maximum number of texts on a page of attention maps.
MAX_ATTENTION_TEXTS = 20
# The maximum number of texts on a page of predictions. To explain more texts would take long, and
# browsers would be slow to show them.
MAX_PAGE_TEXTS = 1000


def predict_texts(
    texts: InputTexts,
    output: Output,
    chunk_classifier: ChunkClassifier,
    progress: Progress,
    *,
    attention: Path | None = None,
    on_terminal: bool = False,
) -> None:
    """Classify the texts of an input chunk by chunk, and write the predictions to an output.

    Args:
        texts: the input.
        output: receives the bytes of the predictions.
        chunk_classifier: classifies the chunks, and counts unexpected predictions.
        progress: shows how many texts are done.
        attention: the file for a page with attention maps of the first texts; None writes no such
            page.
        on_terminal: whether the output is a terminal.
    """
    # Read the first chunk early: it has the texts of the attention maps, and the columns of an
    # input that cannot be read twice.
    chunks = texts.chunks(progress.note)
    first_chunk = next(chunks, [])
    if first_chunk:
        chunks = chain([first_chunk], chunks)

    classifier = chunk_classifier.classifier
    options = chunk_classifier.options
    if attention:
        first_texts = [row.text for row in first_chunk[:MAX_ATTENTION_TEXTS]]
        write_output(attention, attention_page(classifier, first_texts))

    prediction_format: PredictionFormat
    if options.output_format == "html":
        page_rows, are_all_rows = _rows_of_page(chunks)
        chunks = iter([page_rows])
        prediction_format = _page_format(chunk_classifier, has_all_texts=are_all_rows)
    else:
        # Standard input cannot be read ahead, so take the columns of its first chunk.
        columns = texts.columns
        if columns is None:
            columns = {}
            add_columns(columns, first_chunk)
        prediction_format = _format_of_rows(
            options, classifier, texts, columns, on_terminal=on_terminal
        )

    with prediction_format.writing_to(output) as write:
        for classified in chunk_classifier.classify(chunks, prediction_format):
            write(classified.encoded)
            # The progress is measured in lines of files, which other inputs do not have.
            if texts.files:
                progress.done(classified.last, classified.num_texts)

    for warning in texts.skipped_rows():
        chunk_classifier.warn(warning)


def _rows_of_page(chunks: Iterator[Chunk]) -> tuple[list[Row], bool]:
    """Read the rows that fit on a page.

    Returns:
        The rows, and whether they are all rows of the chunks.
    """
    rows = chain.from_iterable(chunks)
    page_rows = list(islice(rows, MAX_PAGE_TEXTS))
    are_all_rows = next(rows, None) is None
    return page_rows, are_all_rows


def _page_format(chunk_classifier: ChunkClassifier, *, has_all_texts: bool) -> PageFormat:
    """Make the format of an HTML page, and warn if the page does not show all texts."""
    note = None
    if not has_all_texts:
        note = f"the first {MAX_PAGE_TEXTS:,} texts"
        chunk_classifier.warn(
            f"warning: the page shows only {note}; choose another --format to get all predictions"
        )
    return PageFormat(chunk_classifier.options, chunk_classifier.classifier, note)


def _format_of_rows(
    options: PredictionOptions,
    classifier: Classifier,
    texts: InputTexts,
    columns: ColumnTypes,
    *,
    on_terminal: bool,
) -> PredictionFormat:
    """Make the format of an output that is not an HTML page.

    Args:
        options: the options, with the name of the format.
        classifier: the classifier whose predictions are written.
        texts: the input.
        columns: the columns of the input that the output keeps.
        on_terminal: whether the output is a terminal.
    """
    if options.output_format == "parquet":
        from encoder_cls.bulk.parquet_format import ParquetFormat

        return ParquetFormat(options, classifier, texts, columns)
    if options.output_format in {"csv", "tsv"}:
        return DelimitedFormat(options, classifier, texts, columns, on_terminal=on_terminal)
    if options.output_format == "jsonl":
        return JsonFormat(options, columns)
    return PlainTextFormat(options, max_seq_len=classifier.max_seq_len, is_coloured=on_terminal)
