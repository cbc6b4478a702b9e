"""`predict`: classify the texts of an input, and write the answers to an output.

`predict_texts` is the loop: it reads a chunk, classifies it and writes the answers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from encoder_cls.bulk.answer_options import AnswerOptions, answer_options
from encoder_cls.bulk.answers import ChunkClassifier, choose_engine, chunk_classifier
from encoder_cls.bulk.formats import AnswerFormat, DelimitedFormat, JsonFormat, Output
from encoder_cls.bulk.html_format import PageFormat, attention_page
from encoder_cls.bulk.input_texts import Chunk, ColumnTypes, InputTexts, add_columns, size_of
from encoder_cls.bulk.output_checks import check_outputs
from encoder_cls.bulk.plain_text_format import PlainTextFormat
from encoder_cls.bulk.progress import Progress
from encoder_cls.bulk.request import (
    CheckedRequest,
    Request,
    check_ray_request,
    check_request,
    newest_model,
)
from encoder_cls.bulk.resumable_folder import Part, ResumableFolder, parts_of
from encoder_cls.bulk.standard_input import STANDARD_INPUT, size_of_standard_input, stream_as_file
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.data.reading.rows import Row
from encoder_cls.system.files import output_file, write_output
from encoder_cls.system.terminal import note, print_out

# The most texts on a page of attention maps.
MOST_ATTENTION_TEXTS = 20
# The most texts on a page of predictions: more is slow to explain, and too much for a browser.
MOST_PAGE_TEXTS = 1000


def predict(request: Request, *, runs: Path) -> None:
    """Check a request and answer it, by default with the newest of the runs.

    Raises:
        EncoderClsError: whatever fails.
    """
    with stream_as_file(request.source) as source:
        request = replace(request, source=source)
        if request.runner == "ray":
            _predict_by_ray(request, runs)
        else:
            _predict_here(check_request(request, runs))


def _predict_by_ray(request: Request, runs: Path) -> None:
    check_ray_request(request)

    from encoder_cls.bulk.ray_spark import predict_by_ray

    predict_by_ray(
        str(request.source),
        str(request.output),
        model=request.model or newest_model(runs),
        engine=request.engine,
        num_workers=request.workers,
    )


def _predict_here(request: CheckedRequest) -> None:
    parts = []
    if request.into_folder:
        parts = parts_of(
            str(request.input.source), Path(str(request.output)), request.output_format
        )
    _check_outputs(request, parts)

    classifier = load_classifier(request.model, device=request.device, engine=request.engine)
    options = answer_options(request, classifier)
    texts = InputTexts(request.input, classifier, output_format=options.output_format)

    # Each process that works on a folder chooses its engine by the same files: all of them.
    files = [part.source for part in parts] if request.into_folder else texts.files
    is_standard_input = request.input.source == STANDARD_INPUT
    num_bytes = size_of_standard_input() if is_standard_input else size_of(files)
    choose_engine(classifier, num_bytes, is_explained=options.explained)

    on_terminal = request.output is None and sys.stdout.isatty()
    if not request.into_folder:
        with Progress(files, doing="looked through", bar=not on_terminal) as progress:
            texts.look_ahead(progress, reports_errors=request.output is not None)

    folder_summary = None
    with (
        Progress(files, doing="classified", bar=not on_terminal) as progress,
        chunk_classifier(
            classifier, options, files, device=request.device, warn=progress.note
        ) as chunks,
    ):
        if request.into_folder:
            folder = ResumableFolder(request, parts, chunks, progress, predict_texts)
            folder_summary = folder.fill()
        elif request.output:
            with output_file(request.output) as output:
                predict_texts(texts, output, chunks, progress, attention=request.attention)
        else:
            try:
                predict_texts(
                    texts,
                    StandardOutput(),
                    chunks,
                    progress,
                    attention=request.attention,
                    on_terminal=on_terminal,
                )
            except ReaderGoneError:
                return

    # The answer to a single text shows what a summary would say.
    summary = chunks.summary() if len(request.input.texts) != 1 else None
    for line in (summary, folder_summary):
        if line:
            note(line)


def _check_outputs(request: CheckedRequest, parts: Iterable[Part]) -> None:
    outputs = []
    if not request.into_folder:
        outputs += [path for path in (request.output, request.attention) if path]
    for part in parts:
        outputs += [part.output, part.record]

    source = request.input.source
    check_outputs(
        outputs,
        sources=[source] if source else [],
        model=request.model,
        is_printing=request.output is None,
    )


class ReaderGoneError(Exception):
    """Nobody reads standard output any more: the reader has closed the pipe, as `head` does."""


class StandardOutput:
    """Standard output, to which answers are printed as they come."""

    def write(self, content: bytes) -> None:
        """Print text; raises a `ReaderGoneError` if nobody reads it."""
        if not print_out(content.decode()):
            raise ReaderGoneError


def predict_texts(
    texts: InputTexts,
    output: Output,
    classifier: ChunkClassifier,
    progress: Progress,
    *,
    attention: Path | None = None,
    on_terminal: bool = False,
) -> None:
    """Classify the texts of an input chunk by chunk, and write the answers to an output.

    Args:
        texts: the input.
        output: receives the bytes of the answers.
        classifier: classifies the chunks, and counts their answers.
        progress: is shown how many texts are done.
        attention: the file for a page of the attention maps of the first texts, if one is wanted.
        on_terminal: whether the output is a terminal.
    """
    chunks = texts.chunks(progress.note)
    first_chunk = next(chunks, [])
    if first_chunk:
        chunks = chain([first_chunk], chunks)

    if attention:
        first_texts = [row.text for row in first_chunk[:MOST_ATTENTION_TEXTS]]
        write_output(attention, attention_page(classifier.classifier, first_texts))

    answer_format: AnswerFormat
    if classifier.options.output_format == "html":
        first_rows, are_all = _first_rows(chunks)
        chunks = iter([first_rows])
        answer_format = _page_format(classifier, are_all=are_all)
    else:
        columns = texts.columns
        if columns is None:  # they cannot be read ahead
            columns = {}
            add_columns(columns, first_chunk)
        answer_format = _format_of(
            classifier.options, classifier.classifier, texts, columns, on_terminal=on_terminal
        )

    with answer_format.writing_to(output) as write:
        for classified in classifier.classify(chunks, answer_format):
            write(classified.encoded)
            if texts.files:
                progress.done(classified.last, classified.num_texts)

    for warning in texts.skipped_rows():
        classifier.warn(warning)


def _first_rows(chunks: Iterator[Chunk]) -> tuple[list[Row], bool]:
    """The rows that fit on a page, and whether these are all."""
    rows = chain.from_iterable(chunks)
    first_rows = list(islice(rows, MOST_PAGE_TEXTS))
    are_all = next(rows, None) is None
    return first_rows, are_all


def _page_format(classifier: ChunkClassifier, *, are_all: bool) -> PageFormat:
    """The format of a page, after a warning if it does not hold all texts."""
    which = None
    if not are_all:
        which = f"the first {MOST_PAGE_TEXTS:,} texts"
        classifier.warn(f"warning: the page holds {which} only; other formats hold all")
    return PageFormat(classifier.options, classifier.classifier, which)


def _format_of(
    options: AnswerOptions,
    classifier: Classifier,
    texts: InputTexts,
    columns: ColumnTypes,
    *,
    on_terminal: bool,
) -> AnswerFormat:
    """The format of the answers, if they are no page; `columns` are those that the output keeps."""
    if options.output_format == "parquet":
        from encoder_cls.bulk.parquet_format import ParquetFormat

        return ParquetFormat(options, classifier, texts, columns)
    if options.output_format in {"csv", "tsv"}:
        return DelimitedFormat(options, classifier, texts, columns, on_terminal=on_terminal)
    if options.output_format == "jsonl":
        return JsonFormat(options, columns)
    return PlainTextFormat(options, max_seq_len=classifier.max_seq_len, is_coloured=on_terminal)
