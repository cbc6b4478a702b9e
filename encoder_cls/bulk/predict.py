"""The command `predict`: check a request, open its input and output, and classify the texts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from encoder_cls.bulk.chunk_classifier import open_chunk_classifier
from encoder_cls.bulk.input_size import choose_engine, processes_for
from encoder_cls.bulk.input_texts import InputTexts, size_of
from encoder_cls.bulk.prediction_loop import predict_texts
from encoder_cls.bulk.prediction_options import PredictionOptions, prediction_options
from encoder_cls.bulk.progress_bar import Progress
from encoder_cls.bulk.request import Request, check_runner_request, checked, newest_model
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
    """Check a request, classify its texts and write the predictions; `runs` is as in `checked`.

    Raises:
        EncoderClsError: an option, the input, the model or the output is not usable.
    """
    with stream_as_file(request.source) as source:
        request = replace(request, source=source)
        if request.runner == "local":
            _predict_here(checked(request, runs))
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


def _predict_here(request: Request) -> None:
    parts = parts_of(request) if request.into_folder else []
    _check_output_paths(request, parts)

    classifier = load_classifier(str(request.model), device=request.device, engine=request.engine)
    options = prediction_options(request, classifier)
    texts = InputTexts(options, classifier)

    files = [part.source for part in parts] or texts.files
    # For a folder this is the size of all parts, even those that other processes classify, so that
    # all processes choose the same engine.
    num_bytes = size_of(files)
    num_processes = processes_for(num_bytes)
    if request.source == STANDARD_INPUT:
        num_bytes = size_of_standard_input()
    choose_engine(
        classifier,
        num_bytes,
        is_explained=options.explained,
        num_processes=num_processes,
        first_texts=texts.first_texts,
    )

    if request.output_format == "xlsx":
        _check_rows_fit_sheets(options, texts, parts, classifier)

    # A bar would be mixed up with predictions on the same terminal.
    on_terminal = request.output is None and sys.stdout.isatty()
    if not parts:
        with Progress(files, doing="looked through", bar=not on_terminal) as progress:
            texts.look_ahead(progress, reports_errors=request.output is not None)

    folder_summary = None
    with (
        Progress(files, doing="classified", bar=not on_terminal) as progress,
        open_chunk_classifier(
            classifier, options, num_processes=num_processes, warn=progress.note
        ) as chunk_classifier,
    ):
        if parts:
            folder_summary = ResumableFolder(parts, chunk_classifier, progress).fill()
        elif request.output:
            with output_file(Path(request.output)) as output:
                predict_texts(texts, output, chunk_classifier, progress)
        else:
            try:
                predict_texts(
                    texts, StandardOutput(), chunk_classifier, progress, on_terminal=on_terminal
                )
            except ReaderGoneError:
                return

    # The prediction for a single text already shows what the summary would say.
    is_single_text = request.texts is not None and len(request.texts) == 1
    summary = chunk_classifier.summary()
    if summary and not is_single_text:
        note(summary)
    if folder_summary:
        note(folder_summary)
    has_points = request.output_format == "csv" and request.decimal == "point"
    if request.output and has_points and texts.has_workbook():
        note(
            f"{Path(request.output)}: has commas between fields and decimal points; where Excel "
            "expects semicolons, choose --decimal comma, or an output that ends with .xlsx"
        )


def _check_rows_fit_sheets(
    options: PredictionOptions, texts: InputTexts, parts: Sequence[Part], classifier: Classifier
) -> None:
    from encoder_cls.bulk.excel_format import check_rows_fit

    texts_of_sheets = [texts]
    if parts:
        texts_of_sheets = [
            InputTexts(replace(options, source=str(part.source)), classifier) for part in parts
        ]
    for texts_of_sheet in texts_of_sheets:
        check_rows_fit(texts_of_sheet)


def _check_output_paths(request: Request, parts: Sequence[Part]) -> None:
    outputs = []
    for part in parts:
        outputs += [part.output, part.record]
    if not parts:
        outputs = [Path(path) for path in (request.output, request.attention) if path]

    source = request.source
    check_outputs(
        outputs,
        sources=[source] if source else [],
        model=request.model,
        is_printing=request.output is None,
    )
    if source:
        check_fit_no_pattern(outputs, source)


class ReaderGoneError(Exception):
    """Standard output has no reader any more, as after `head`."""


class StandardOutput:
    """Standard output, where predictions are printed at once."""

    def write(self, content: bytes) -> None:
        """Print UTF-8; a `ReaderGoneError` if nobody reads it."""
        if not print_out(content.decode()):
            raise ReaderGoneError
