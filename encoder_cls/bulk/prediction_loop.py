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

# The most texts on a page of attention maps.
MAX_ATTENTION_TEXTS = 20
# The most texts on a page of predictions: more is slow to explain, and too much for a browser.
MAX_PAGE_TEXTS = 1000


def predict_texts(
    texts: InputTexts,
    output: Output,
    classifier: ChunkClassifier,
    progress: Progress,
    *,
    attention: Path | None = None,
    on_terminal: bool = False,
) -> None:
    """Classify the texts of an input chunk by chunk, and write the predictions to an output.

    Args:
        texts: the input.
        output: receives the bytes of the predictions.
        classifier: classifies the chunks, and counts unexpected predictions.
        progress: is shown how many texts are done.
        attention: the file for a page of the attention maps of the first texts, if one is wanted.
        on_terminal: whether the output is a terminal.
    """
    chunks = texts.chunks(progress.note)
    first_chunk = next(chunks, [])
    if first_chunk:
        chunks = chain([first_chunk], chunks)

    if attention:
        first_texts = [row.text for row in first_chunk[:MAX_ATTENTION_TEXTS]]
        write_output(attention, attention_page(classifier.classifier, first_texts))

    prediction_format: PredictionFormat
    if classifier.options.output_format == "html":
        first_rows, are_all = _first_rows(chunks)
        chunks = iter([first_rows])
        prediction_format = _page_format(classifier, are_all=are_all)
    else:
        columns = texts.columns
        if columns is None:  # they cannot be read ahead
            columns = {}
            add_columns(columns, first_chunk)
        prediction_format = _format_of(
            classifier.options, classifier.classifier, texts, columns, on_terminal=on_terminal
        )

    with prediction_format.writing_to(output) as write:
        for classified in classifier.classify(chunks, prediction_format):
            write(classified.encoded)
            if texts.files:
                progress.done(classified.last, classified.num_texts)

    for warning in texts.skipped_rows():
        classifier.warn(warning)


def _first_rows(chunks: Iterator[Chunk]) -> tuple[list[Row], bool]:
    """The rows that fit on a page, and whether these are all."""
    rows = chain.from_iterable(chunks)
    first_rows = list(islice(rows, MAX_PAGE_TEXTS))
    are_all = next(rows, None) is None
    return first_rows, are_all


def _page_format(classifier: ChunkClassifier, *, are_all: bool) -> PageFormat:
    """The format of a page, after a warning if it does not hold all texts."""
    which = None
    if not are_all:
        which = f"the first {MAX_PAGE_TEXTS:,} texts"
        classifier.warn(f"warning: the page holds {which} only; other formats hold all")
    return PageFormat(classifier.options, classifier.classifier, which)


def _format_of(
    options: PredictionOptions,
    classifier: Classifier,
    texts: InputTexts,
    columns: ColumnTypes,
    *,
    on_terminal: bool,
) -> PredictionFormat:
    """The format of predictions in other forms than a page; `columns` are those it keeps."""
    if options.output_format == "parquet":
        from encoder_cls.bulk.parquet_format import ParquetFormat

        return ParquetFormat(options, classifier, texts, columns)
    if options.output_format in {"csv", "tsv"}:
        return DelimitedFormat(options, classifier, texts, columns, on_terminal=on_terminal)
    if options.output_format == "jsonl":
        return JsonFormat(options, columns)
    return PlainTextFormat(options, max_seq_len=classifier.max_seq_len, is_coloured=on_terminal)
