"""The loop of `predict`: read a chunk of texts, classify it, and write the predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from encoder_cls.bulk.attention_file import attention_file
from encoder_cls.bulk.chunk_classifier import ChunkClassifier, ClassifiedChunk
from encoder_cls.bulk.delimited_format import DelimitedFormat
from encoder_cls.bulk.html_format import PageFormat
from encoder_cls.bulk.input_texts import CHUNK, Chunk, ColumnTypes, InputTexts, add_columns
from encoder_cls.bulk.json_format import JsonFormat
from encoder_cls.bulk.plain_text_format import PlainTextFormat
from encoder_cls.bulk.predicted_text import predict_chunk
from encoder_cls.bulk.prediction_format import Output, PredictionFormat, RowFormat
from encoder_cls.bulk.prediction_options import PredictionOptions
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.sorted_rows import SortedRows
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.data.reading.rows import Row
from encoder_cls.system.encodings import encodable
from encoder_cls.system.files import write_output
from encoder_cls.system.lazy_sequences import DiskBackedTexts, in_chunks

# The maximum number of texts on a page of attention maps.
MAX_ATTENTION_TEXTS = 20


def predict_texts(
    texts: InputTexts,
    output: Output,
    chunk_classifier: ChunkClassifier,
    progress: Progress,
    *,
    on_terminal: bool = False,
) -> None:
    """Classify an input chunk by chunk, and write the predictions."""
    # Read the first chunk early: it has the texts of the attention maps, and the columns of an
    # input that cannot be read twice.
    chunks = texts.chunks(progress.note)
    first_chunk = next(chunks, [])
    if first_chunk:
        chunks = chain([first_chunk], chunks)

    classifier = chunk_classifier.classifier
    options = chunk_classifier.options
    if options.attention:
        first_texts = [row.text for row in first_chunk[:MAX_ATTENTION_TEXTS]]
        maps = attention_file(options.attention, classifier, first_texts)
        write_output(options.attention, maps)

    # Standard input cannot be read ahead, so take the columns of its first chunk.
    columns = texts.columns
    if columns is None:
        columns = {}
        add_columns(columns, first_chunk)
    prediction_format = _format_of(options, classifier, texts, columns, on_terminal=on_terminal)

    with prediction_format.writing_to(output) as write:
        if options.sort:
            assert isinstance(prediction_format, RowFormat)
            _write_sorted(chunk_classifier, chunks, prediction_format, progress, write)
        else:
            for classified in _classified(chunk_classifier, chunks, prediction_format):
                write(classified.encoded)
                progress.done(classified.last, classified.num_texts)

    for warning in (*texts.skipped_rows(), *prediction_format.warnings()):
        chunk_classifier.warn(warning)


def _classified(
    chunk_classifier: ChunkClassifier,
    chunks: Iterator[Chunk],
    prediction_format: PredictionFormat,
) -> Iterator[ClassifiedChunk]:
    """Classify chunks in order; a format may want its first rows explained."""
    if prediction_format.num_explained:
        rows = chain.from_iterable(chunks)
        first_rows = list(islice(rows, prediction_format.num_explained))
        if first_rows:
            yield from chunk_classifier.classify([first_rows], prediction_format, explained=True)
        chunks = in_chunks(rows, CHUNK)
    yield from chunk_classifier.classify(chunks, prediction_format)


def _write_sorted(
    chunk_classifier: ChunkClassifier,
    chunks: Iterator[Chunk],
    prediction_format: RowFormat,
    progress: Progress,
    write: Callable[[Sequence[bytes]], object],
) -> None:
    num_explained = prediction_format.num_explained
    kept_texts = DiskBackedTexts()
    if num_explained:
        chunks = _keeping_texts(chunks, kept_texts)

    sorted_rows = SortedRows()
    for classified in chunk_classifier.classify(chunks, prediction_format):
        sorted_rows.add(classified.encoded, classified.sort_keys)
        progress.done(classified.last, classified.num_texts)
    order = sorted_rows.order()

    # Only now it is known which rows are the first ones. Classify them again, to explain them.
    first_rows = []
    if num_explained:
        first_rows = [Row(text) for text in kept_texts.select(order[:num_explained])]
    if first_rows:
        explained = predict_chunk(
            chunk_classifier.classifier, chunk_classifier.options, first_rows, explained=True
        )
        write(prediction_format.encode(explained))

    for rows in sorted_rows.read(order[len(first_rows) :]):
        write(rows)


def _keeping_texts(chunks: Iterator[Chunk], kept_texts: DiskBackedTexts) -> Iterator[Chunk]:
    for chunk in chunks:
        kept_texts.append([encodable(row.text) for row in chunk])
        yield chunk


def _format_of(
    options: PredictionOptions,
    classifier: Classifier,
    texts: InputTexts,
    columns: ColumnTypes,
    *,
    on_terminal: bool,
) -> PredictionFormat:
    if options.output_format == "parquet":
        from encoder_cls.bulk.parquet_format import ParquetFormat

        return ParquetFormat(options, classifier, texts, columns)
    if options.output_format == "xlsx":
        from encoder_cls.bulk.excel_format import ExcelFormat

        return ExcelFormat(options, classifier, texts, columns)
    if options.output_format == "html":
        return PageFormat(options, classifier)
    if options.output_format in {"csv", "tsv"}:
        return DelimitedFormat(options, classifier, texts, columns, on_terminal=on_terminal)
    if options.output_format == "jsonl":
        return JsonFormat(options, columns)
    return PlainTextFormat(options, max_seq_len=classifier.max_seq_len, is_coloured=on_terminal)
