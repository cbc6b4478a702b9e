"""`predict`: check a request, open its input and its output, and classify the texts.

The loop over the texts is in `prediction_loop`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from encoder_cls.bulk.chunk_classifier import chunk_classifier
from encoder_cls.bulk.engine_choice import choose_engine
from encoder_cls.bulk.input_texts import InputTexts, size_of
from encoder_cls.bulk.output_checks import check_outputs
from encoder_cls.bulk.prediction_loop import predict_texts
from encoder_cls.bulk.prediction_options import prediction_options
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.request import (
    CheckedRequest,
    Request,
    check_ray_request,
    check_request,
    newest_model,
)
from encoder_cls.bulk.resumable_folder import Part, ResumableFolder, parts_of
from encoder_cls.bulk.standard_input import STANDARD_INPUT, size_of_standard_input, stream_as_file
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.system.files import output_file
from encoder_cls.system.terminal import note, print_out


def predict(request: Request, *, runs: Path) -> None:
    """Check a request and classify its texts, by default with the model of the newest run.

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
    options = prediction_options(request, classifier)
    texts = InputTexts(request.input, classifier, output_format=options.output_format)

    # Each process that works on a folder chooses its engine by the same files: all of them.
    files = texts.files
    if request.into_folder:
        files = [part.source for part in parts]
    num_bytes = size_of(files)
    if request.input.source == STANDARD_INPUT:
        num_bytes = size_of_standard_input()
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
            folder = ResumableFolder(request, parts, chunks, progress)
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

    # The prediction for a single text shows what a summary would say.
    summary = None
    if len(request.input.texts) != 1:
        summary = chunks.summary()
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
    """Standard output, to which predictions are printed as they come."""

    def write(self, content: bytes) -> None:
        """Print text; raises a `ReaderGoneError` if nobody reads it."""
        if not print_out(content.decode()):
            raise ReaderGoneError
