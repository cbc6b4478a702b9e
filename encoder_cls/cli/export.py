"""The command `encoder-cls export`: a classifier as a JavaScript module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.cli.options import TrainedModel, check_ending
from encoder_cls.system.terminal import note


def export_command(
    run: TrainedModel,
    output: Annotated[
        Path,
        typer.Option(help="The file to write: .mjs for a JavaScript module."),
    ],
) -> None:
    """Export a classifier as one file that runs in browsers and in Node, without Python."""
    check_ending(output, ".mjs")

    from encoder_cls.bulk.output_checks import check_outputs
    from encoder_cls.system.files import write_output

    check_outputs([output], model=run)

    from encoder_cls.export.javascript import javascript_module
    from encoder_cls.export.model_file import exportable_model

    classifier, model = exportable_model(run)
    content = javascript_module(classifier, model).encode()
    write_output(output, content)

    note(f"wrote {output}: {len(content) / 1e6:.1f} MB, for browsers, Node, Deno and Bun")
    note(f'next: import {{ load }} from "./{output.name}"; const classifier = await load();')
    note('      classifier.predict(["some text"], { topK: 3 })')
