"""The command `predict`: check a request, open its input and output, and classify the texts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from encoder_cls.bulk.chunk_classifier import ChunkClassifier, open_chunk_classifier
from encoder_cls.bulk.input_size import choose_engine, processes_for
from encoder_cls.bulk.input_texts import InputTexts, size_of
from encoder_cls.bulk.prediction_loop import predict_texts
from encoder_cls.bulk.prediction_options import prediction_options
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.request import (
    CheckedRequest,
    Request,
    check_request,
    check_runner_request,
    newest_model,
)
from encoder_cls.bulk.resumable_folder import Part, ResumableFolder, parts_of
from encoder_cls.bulk.standard_input import size_of_standard_input, stream_as_file
from encoder_cls.classifier.classifier import Classifier
from encoder_cls.classifier.model_folder import load_classifier
from encoder_cls.errors import ConfigError
from encoder_cls.run.output_checks import check_fit_no_pattern, check_outputs
from encoder_cls.system.annexes import annexes_with
from encoder_cls.system.files import STANDARD_INPUT, output_file
from encoder_cls.system.terminal import note, print_out


def predict(request: Request, *, runs: Path) -> None:
    """Check a request, classify its texts and write the predictions.

    If the request names no model, the newest run with a model in the folder `runs` is used.

    Raises:
        EncoderClsError: an option, the input, the model or the output is not usable.
    """
    with stream_as_file(request.source) as source:
        request = replace(request, source=source)
        if request.runner == "local":
            _predict_here(check_request(request, runs))
        else:
            _predict_elsewhere(request, runs)


def _predict_elsewhere(request: Request, runs: Path) -> None:
    """Let an annex classify Parquet files, such as in the processes of Ray."""
    runners = annexes_with("runner")
    if request.runner not in runners:
        known = ", ".join(["local", *runners])
        raise ConfigError(f"--runner {request.runner}: unknown; known are {known}")
    check_runner_request(request)

    runners[request.runner].run(
        str(request.source),
        str(request.output),
        model=request.model or newest_model(runs),
        engine=request.engine,
        num_workers=request.workers,
    )


def _predict_here(request: CheckedRequest) -> None:
    parts = _parts_of_request(request)
    _check_output_paths(request, parts)

    classifier = load_classifier(request.model, device=request.device, engine=request.engine)
    options = prediction_options(request, classifier)
    texts = InputTexts(request.input, classifier, output_format=options.output_format)

    files = _files_to_classify(request, texts, parts)
    num_bytes = _size_of_input(request, files)
    choose_engine(
        classifier,
        num_bytes,
        is_explained=options.explained,
        num_processes=processes_for(size_of(files)),
        first_texts=texts.first_texts,
    )

    if request.output_format == "xlsx":
        _check_rows_fit_sheets(request, texts, parts, classifier)

    # A bar would be mixed up with predictions on the same terminal.
    has_bar = not _prints_on_terminal(request)
    if not request.into_folder:
        with Progress(files, doing="looked through", bar=has_bar) as progress:
            texts.look_ahead(progress, reports_errors=request.output is not None)

    with (
        Progress(files, doing="classified", bar=has_bar) as progress,
        open_chunk_classifier(classifier, options, files, warn=progress.note) as chunk_classifier,
    ):
        try:
            folder_summary = _write_predictions(request, parts, texts, chunk_classifier, progress)
        except ReaderGoneError:
            return

    # The prediction for a single text already shows what the summary would say.
    if len(request.input.texts) != 1:
        summary = chunk_classifier.summary()
        if summary:
            note(summary)
    if folder_summary:
        note(folder_summary)
    has_points = request.output_format == "csv" and request.decimal == "point"
    if request.output and has_points and texts.has_workbook():
        note(
            f"{request.output}: has commas between fields and decimal points; where Excel "
            "expects semicolons, choose --decimal comma, or an output that ends with .xlsx"
        )


def _check_rows_fit_sheets(
    request: CheckedRequest, texts: InputTexts, parts: Sequence[Part], classifier: Classifier
) -> None:
    from encoder_cls.bulk.excel_format import check_rows_fit

    inputs = [texts]
    if request.into_folder:
        inputs = []
        for part in parts:
            options = replace(request.input, source=str(part.source))
            inputs.append(InputTexts(options, classifier, output_format="xlsx"))
    for texts_of_sheet in inputs:
        check_rows_fit(texts_of_sheet)


def _parts_of_request(request: CheckedRequest) -> list[Part]:
    """The files of a folder with their files of predictions; empty for another output."""
    if not request.into_folder:
        return []
    return parts_of(str(request.input.source), Path(str(request.output)), request.output_format)


def _check_output_paths(request: CheckedRequest, parts: Sequence[Part]) -> None:
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
    if source:
        check_fit_no_pattern(outputs, source)


def _files_to_classify(
    request: CheckedRequest, texts: InputTexts, parts: Sequence[Part]
) -> Sequence[Path]:
    if request.into_folder:
        return [part.source for part in parts]
    return texts.files


def _size_of_input(request: CheckedRequest, files: Sequence[Path]) -> int:
    """The size of the input in bytes; 0 if it is unknown.

    For a folder this is the size of all parts, even those that other processes classify, so that
    all processes choose the same engine.
    """
    if request.input.source == STANDARD_INPUT:
        return size_of_standard_input()
    return size_of(files)


def _prints_on_terminal(request: CheckedRequest) -> bool:
    return request.output is None and sys.stdout.isatty()


def _write_predictions(
    request: CheckedRequest,
    parts: Sequence[Part],
    texts: InputTexts,
    chunk_classifier: ChunkClassifier,
    progress: Progress,
) -> str | None:
    """Write the predictions into a folder, a file or standard output.

    Return a line about the files of a folder; None for another output.
    """
    if request.into_folder:
        return ResumableFolder(request, parts, chunk_classifier, progress).fill()

    if request.output:
        with output_file(request.output) as output:
            predict_texts(texts, output, chunk_classifier, progress, attention=request.attention)
        return None

    predict_texts(
        texts,
        StandardOutput(),
        chunk_classifier,
        progress,
        attention=request.attention,
        on_terminal=_prints_on_terminal(request),
    )
    return None


class ReaderGoneError(Exception):
    """The reader of standard output has closed the pipe, as `head` does."""


class StandardOutput:
    """Standard output, on which predictions are printed at once."""

    def write(self, content: bytes) -> None:
        """Print UTF-8 text; a `ReaderGoneError` if the reader has closed the pipe."""
        if not print_out(content.decode()):
            raise ReaderGoneError
