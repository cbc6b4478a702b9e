"""The command `encoder-cls export`: a classifier as a web page or a JavaScript module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.system.command_options import TrainedModel, check_ending
from encoder_cls.system.terminal import note


def export_command(
    run: TrainedModel,
    output: Annotated[
        Path,
        typer.Option(
            help="The file to write: .html for a page that opens by a double click, or .mjs for a "
            "JavaScript module."
        ),
    ],
    linear_only: Annotated[
        bool,
        typer.Option(
            "--linear-only",
            help="Leave out the encoder: a smaller file, whose predictions are those of the linear "
            "part alone.",
        ),
    ] = False,
) -> None:
    """Export a classifier as one file that runs in browsers and in Node, without Python."""
    check_ending(output, ".html", ".mjs")

    from encoder_cls import check_outputs

    check_outputs([output], model=run)

    from encoder_cls.extras.export.javascript import javascript_module
    from encoder_cls.extras.export.model_file import exported_model
    from encoder_cls.extras.export.web_page import model_facts, web_page
    from encoder_cls.system.files import write_output

    model = exported_model(run, linear_only=linear_only)
    is_page = output.suffix.lower() == ".html"
    content = web_page(model, model_facts(run, model)) if is_page else javascript_module(model)
    encoded = content.encode()
    write_output(output, encoded)

    size = f"{len(encoded) / 1e6:.1f} MB"
    if is_page:
        note(f"wrote {output}: {size}; open it in a browser, it needs no server and no network")
        return
    note(f"wrote {output}: {size}, for browsers, Node, Deno and Bun")
    note(f'next: import {{ load }} from "./{output.name}"; const classifier = await load();')
    note('      classifier.predict(["some text"], { topK: 3 })')


COMMANDS: dict[str, Callable[..., None]] = {"export": export_command}
