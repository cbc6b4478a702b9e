"""Answer a request on standard output, in a file or in a folder of parts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_cls.system.terminal import is_output_a_file, note, print_out, warn_if_output_closed

if TYPE_CHECKING:
    from encoder_cls.answers.request import Request


def predict(request: Request, *, runs: Path) -> None:
    """Check a request, and answer it, by the newest of the runs where no model is named.

    Raises:
        EncoderClsError: the request cannot be met, the input is malformed, or the disk refuses.
    """
    request = request.checked()
    model, about_model = (request.model, None) if request.model else _newest(runs)
    outputs = [Path(path) for path in (request.output, request.attention) if path]
    parts = []
    if request.into_folder:
        from encoder_cls.answers.parts import new_parts, predict_parts

        parts = new_parts(request, model)
    elif request.runner == "local" and (outputs or is_output_a_file()):
        from encoder_cls.answers.outputs import check_outputs

        sources = [request.source] if request.source else []
        check_outputs(outputs, sources=sources, model=model, is_printing=request.output is None)
    if about_model:
        note(about_model)
    if request.runner == "ray":
        from encoder_cls.answers.batches import predict_by_ray

        predict_by_ray(request, model)
        return
    if request.output is None:
        warn_if_output_closed()
    if request.source is None:  # a few texts need no pool of threads, which NumPy would make as it is imported
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from encoder_cls.answers.classify import answering
    from encoder_cls.answers.formats import written
    from encoder_cls.answers.inputs import Source
    from encoder_cls.answers.progress import Progress
    from encoder_cls.inference.folder import load_classifier
    from encoder_cls.system.files import write_output

    classifier = load_classifier(model, device=request.device, engine=request.engine)
    request = request.with_guarantees(classifier)
    if request.into_folder:
        predict_parts(classifier, parts, request)
        return
    source = Source.asked_for(request, classifier)
    on_terminal = request.output is None and sys.stdout.isatty()
    with Progress(source.files, doing="looked through", bar=not on_terminal) as source.progress:
        source.look_ahead(request)

    with (
        Progress(source.files, doing="classified", bar=not on_terminal) as progress,
        answering(classifier, request, source.files, warn=progress.note) as answerer,
    ):
        source.progress = progress
        content = written(source, answerer, on_terminal=on_terminal)
        if request.output:
            write_output(Path(request.output), content)
        elif not all(print_out(piece.decode()) for piece in content):  # its reader has seen enough
            return
    line = answerer.summary()
    if line and len(request.texts) != 1:  # the answer to a single text says it all
        note(line)


def _newest(runs: Path) -> tuple[Path, str]:
    """The newest run with a model, and a line that names it."""
    from encoder_cls.tracking.run_dir import newest_with_model

    run = newest_with_model(runs)
    unfinished = "" if run.is_finished() else ", which is not finished"
    return run.path, f"model: {run.path} (the newest run{unfinished}; --model names another)"
