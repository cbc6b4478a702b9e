"""The command `encoder-cls label`: label texts in the browser, with a model in the loop."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.cli.options import TextColumns, check_ending, data_overrides
from encoder_cls.errors import ConfigError
from encoder_cls.system.libraries import WHOLE, check_installed, check_training_installed
from encoder_cls.system.terminal import note

if TYPE_CHECKING:
    from encoder_cls.labelling.open_session import PoolOptions
    from encoder_cls.labelling.session import Session


def label_command(
    pool: Annotated[
        str | None,
        typer.Argument(help="The texts to label: a file, a folder or a pattern of files."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The CSV file of the labels. If it exists, the labelling continues.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="The names of the classes, separated by commas. Classes can also be added on the "
            "page."
        ),
    ] = None,
    multi_label: Annotated[
        bool, typer.Option("--multi-label", help="A text may have any number of labels.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of the page; 0 takes any free port.")
    ] = 0,
    text_columns: TextColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="How to read the texts: data.delimiter=..., data.encoding=... or "
            "data.bad_rows=...",
        ),
    ] = None,
) -> None:
    """Label texts in the browser. A model learns meanwhile and chooses what to ask.

    The page is on this machine alone. Each label is saved before the next text is shown; stop with
    Ctrl-C, and continue with the same command.
    """
    if pool in {None, "", "-"}:
        raise ConfigError("name the texts to label, such as: encoder-cls label messages.csv")
    if output is None:
        raise ConfigError("name the file of the labels, such as --output labels.csv")
    check_ending(output, ".csv")
    reading = data_overrides(overrides, "delimiter", "encoding", "bad_rows")
    class_names = _names_in(labels or "")

    check_training_installed()
    for library in ("starlette", "uvicorn", "prometheus_client"):
        check_installed(library, needed_by="label", install=f"'{WHOLE}[serve]'")

    from encoder_cls.bulk.output_checks import check_outputs
    from encoder_cls.labelling.model_loop import ModelLoop, curve_file
    from encoder_cls.labelling.open_session import PoolOptions, open_session, skipped_file
    from encoder_cls.labelling.server import serve_session
    from encoder_cls.system.files import locked

    check_outputs([output, skipped_file(output), curve_file(output)], sources=[pool])
    assert pool
    options = PoolOptions(pool, tuple(text_columns or ("text",)), **reading)
    with locked(output.with_name(f".{output.name}.lock"), wait=False, doing="labelling"):
        opened = open_session(options, output, class_names, is_multi_label=multi_label)
        for line in opened.notes:
            note(line)
        with ModelLoop(opened.session, opened.queue, opened.texts, note):
            serve_session(opened.session, port=port, opens_browser=browser, log=note)
        _report(opened.session, options)


def _names_in(labels: str) -> list[str]:
    """The names of classes in the option `--labels`."""
    return [name.strip() for name in labels.split(",") if name.strip()]


def _report(session: Session, options: PoolOptions) -> None:
    """Say how many labels there are, and how to train with them."""
    from encoder_cls.labelling.class_list import SEPARATOR

    rows = session.labels.rows
    counts = Counter[str]()
    for row in rows:
        counts.update(session.classes.labels_in(row.label))
    of_classes = ", ".join(f"{name} {counts[name]:,}" for name in session.classes.names)
    note(f"{session.labels.path}: {len(rows):,} labels ({of_classes})")
    if session.model:
        _report_model(session)
    if len([name for name in session.classes.names if counts[name]]) < 2:
        return

    settings = {"train": str(session.labels.path), "unlabelled": options.source}
    if tuple(options.text_columns) != ("text",):
        settings["text_column"] = f"[{', '.join(options.text_columns)}]"
    if session.classes.is_multi_label:
        settings["label_separator"] = SEPARATOR
    words = ["encoder-cls", "train"]
    for key, value in settings.items():
        words += ["--set", f"data.{key}={value}"]
    note(f"train with: {shlex.join(words)}")


def _report_model(session: Session) -> None:
    """Say how often the model is right, and how often its guesses were accepted."""
    from encoder_cls.labelling.estimates import acceptance

    assert session.model
    note(f"the model: {session.model.summary()['accuracy']}")
    shown, num_shown = acceptance(session.labels.rows, is_random=False)
    hidden, num_hidden = acceptance(session.labels.rows, is_random=True)
    if num_shown or num_hidden:
        note(
            f"guesses that were the label: {shown:,} of {num_shown:,} that were shown, and "
            f"{hidden:,} of {num_hidden:,} for texts drawn at random, which were hidden"
        )
