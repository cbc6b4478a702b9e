"""The command `encoder-cls label`: label texts in the browser, with a model in the loop."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.command_options import (
    SOURCE_KEYS,
    TextColumns,
    check_ending,
    data_overrides,
)
from encoder_cls.system.files import path_of
from encoder_cls.system.libraries import WHOLE, check_installed, check_training_installed
from encoder_cls.system.terminal import note

if TYPE_CHECKING:
    from encoder_cls.extras.label.pool import PoolOptions
    from encoder_cls.extras.label.session import Session


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
    model: Annotated[
        Path | None,
        typer.Option(help="A run or model folder whose classes and first guesses are used."),
    ] = None,
    review: Annotated[
        Path | None,
        typer.Option(help="A run folder whose doubtful labels are reviewed, in place of texts."),
    ] = None,
    text_columns: TextColumns = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="How to read the texts: data.features=..., data.delimiter=..., "
            "data.encoding=..., data.sheet=... or data.bad_rows=...; with --review, data.KEY=PATH "
            "is the new path of data that has been moved.",
        ),
    ] = None,
) -> None:
    """Label texts in the browser. A model learns meanwhile and chooses what to ask.

    The page is on this machine alone. Each label is saved before the next text is shown; stop with
    Ctrl-C, and continue with the same command.
    """
    if output is None:
        raise ConfigError("name the file of the labels, such as --output labels.csv")
    check_ending(output, ".csv")
    check_training_installed()
    for library in ("starlette", "uvicorn", "prometheus_client"):
        check_installed(library, needed_by="label", install=f"'{WHOLE}[serve]'")
    # A link stays a link, and the file behind it has one lock under all its names.
    output = path_of(output) if output.is_symlink() else output
    check_ending(output, ".csv")
    page = PageOptions(output, port, opens_browser=browser)

    if review:
        if pool or labels or model or multi_label or text_columns:
            raise ConfigError(
                "--review takes the texts and the classes of the run: leave out the texts, "
                "--labels, --model, --multi-label and --text-column"
            )
        _review(review, page, data_overrides(overrides, *SOURCE_KEYS))
        return

    if pool in {None, "", "-"}:
        raise ConfigError("name the texts to label, such as: encoder-cls label messages.csv")
    if model and (labels or multi_label):
        raise ConfigError("--model has the classes: leave out --labels and --multi-label")
    reading = data_overrides(overrides, "features", "delimiter", "encoding", "sheet", "bad_rows")
    features = reading.pop("features", None)
    if model and features is not None:
        raise ConfigError("--model has the features: leave out data.features")
    class_names = [name.strip() for name in (labels or "").split(",") if name.strip()]
    _label(
        str(pool),
        page,
        class_names,
        is_multi_label=multi_label,
        model=model,
        text_columns=tuple(text_columns or ()),
        features=features,
        reading=reading,
    )


class PageOptions(NamedTuple):
    """The file of the labels, and how the page is opened."""

    output: Path
    port: int
    opens_browser: bool


def _label(
    pool: str,
    page: PageOptions,
    class_names: Sequence[str],
    *,
    is_multi_label: bool,
    model: Path | None,
    text_columns: Sequence[str],
    features: str | None,
    reading: Mapping[str, str],
) -> None:
    """Label the texts of a pool; `features` is the value of `data.features` as it is typed."""
    from encoder_cls import check_outputs, config_of, load_classifier, parse_setting
    from encoder_cls.extras.label.label_table import is_own_table
    from encoder_cls.extras.label.model_loop import ModelLoop
    from encoder_cls.extras.label.open_session import open_session
    from encoder_cls.extras.label.pool import PoolOptions
    from encoder_cls.extras.label.server import serve_session
    from encoder_cls.extras.label.session_memory import files_of_session

    output = page.output
    # A pattern also fits the files that an earlier session has written beside the texts.
    is_continued = not Path(pool).exists() and is_own_table(output)
    check_outputs(files_of_session(output), sources=[] if is_continued else [pool], model=model)

    options = PoolOptions(pool)
    code_names: Mapping[str, str] = {}
    if model:
        classifier = load_classifier(model, engine="numpy")
        class_names = classifier.label_names
        is_multi_label = classifier.is_multi_label
        if classifier.codes:
            code_names = classifier.codes.names
        form = classifier.text_format
        options = PoolOptions(pool, form.columns, classifier.features, form.reading)
    options = options._replace(reading=options.reading.overridden(**reading))
    if text_columns:
        options = options._replace(text_columns=text_columns)
    if features is not None:
        columns = {
            "data.text_column": list(options.text_columns),
            "data.features": parse_setting("data.features", features),
        }
        data = config_of({"name": "labels", "data.train": str(output), **columns}).data
        options = options._replace(features=data.features)

    with _locked(output):
        opened = open_session(options, output, class_names, is_multi_label=is_multi_label)
        opened.session.code_names = code_names
        for line in opened.notes:
            note(line)
        with ModelLoop(
            opened.session, opened.queue, opened.texts, note, run=model, classes_of_run=class_names
        ):
            serve_session(
                opened.session, port=page.port, opens_browser=page.opens_browser, log=note
            )
        is_run = model is not None and (model / "config.yaml").exists()
        _report(opened.session, options, base_run=model if is_run else None)


def _review(run: Path, page: PageOptions, moved: Mapping[str, str]) -> None:
    from encoder_cls import check_outputs
    from encoder_cls.extras.label.review_session import open_review
    from encoder_cls.extras.label.server import serve_session
    from encoder_cls.extras.label.session_memory import skipped_file

    output = page.output
    check_outputs([output, skipped_file(output)], model=run)
    with _locked(output):
        opened = open_review(run, output, moved)
        if opened is None:
            note(f"{run}: has no doubtful label to review")
            return
        for line in opened.notes:
            note(line)
        with opened.model:
            serve_session(
                opened.session, port=page.port, opens_browser=page.opens_browser, log=note
            )

    note(f"{output}: {opened.model.summary()['accuracy']}")
    note(f"train again with: --set data.corrections={shlex.quote(str(output))}")


@contextmanager
def _locked(output: Path) -> Iterator[None]:
    from encoder_cls.system.files import locked, reporting_os_errors

    with reporting_os_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    with locked(output.with_name(f".{output.name}.lock"), wait=False, doing="labelling"):
        yield


# The most classes whose numbers of labels are named at the end.
MAX_SIZES = 30


def _enumerated(sizes: Sequence[str]) -> str:
    more = []
    if len(sizes) > MAX_SIZES:
        more = [f"and {len(sizes) - MAX_SIZES:,} more classes"]
    return ", ".join([*sizes[:MAX_SIZES], *more])


def _report(session: Session, options: PoolOptions, *, base_run: Path | None) -> None:
    rows = session.labels.rows
    counts = Counter[str]()
    for row in rows:
        counts.update(session.classes.labels_in(row.label))
    names = session.classes.names
    if len(names) > MAX_SIZES:
        # Of very many classes, most have no labels yet.
        names = [name for name, _ in counts.most_common()]
    sizes = [f"{name} {counts[name]:,}" for name in names]
    of_classes = f" ({_enumerated(sizes)})" if sizes else ""
    note(f"{session.labels.path}: {len(rows):,} labels{of_classes}")
    _report_model(session)
    labelled_classes = [name for name in session.classes.names if counts[name]]
    if len(labelled_classes) >= 2:
        note(f"train with: {_train_command(session, options, labelled_classes)}")
        if base_run:
            note(f"or go on from the run: {_command_from(base_run, session, options)}")


def _train_command(session: Session, options: PoolOptions, labelled_classes: Sequence[str]) -> str:
    from encoder_cls.extras.label.label_table import LABEL

    labels = session.labels
    settings = {"train": str(labels.path), "unlabelled": options.source}
    # Names with commas or colons are quoted in JSON, which is YAML.
    columns = {"text_column": options.text_columns, "features": options.features}
    for key, names in columns.items():
        if tuple(names) not in {("text",), ()}:
            settings[key] = json.dumps(names, ensure_ascii=False)
    if labels.label_column != LABEL:
        settings["label_column"] = labels.label_column
    if labels.blank_rows:
        settings["label_names"] = json.dumps(labelled_classes, ensure_ascii=False)
    return _command([], settings | _settings_of_reading(session, options))


def _command_from(base_run: Path, session: Session, options: PoolOptions) -> str:
    """The command that continues a run, which has the other columns, and the levels of codes."""
    labels = session.labels
    settings = {
        "train": str(labels.path),
        "text_column": json.dumps(options.text_columns, ensure_ascii=False),
        "label_column": labels.label_column,
        **_settings_of_reading(session, options),
    }
    if labels.blank_rows:
        settings["bad_rows"] = "skip"
    return _command(["--from", str(base_run)], settings)


def _settings_of_reading(session: Session, options: PoolOptions) -> dict[str, str]:
    from encoder_cls import ReadingOptions
    from encoder_cls.extras.label.class_list import SEPARATOR

    settings = {}
    # The labels are read as the texts are.
    for key in ("delimiter", "encoding", "sheet", "bad_rows"):
        value = getattr(options.reading, key)
        if value != getattr(ReadingOptions, key):
            settings[key] = value
    if session.classes.is_multi_label:
        settings["label_separator"] = SEPARATOR
    return settings


def _command(options: Sequence[str], settings: Mapping[str, str]) -> str:
    words = ["encoder-cls", "train", *options]
    for key, value in settings.items():
        words += ["--set", f"data.{key}={value}"]
    return shlex.join(words)


def _report_model(session: Session) -> None:
    from encoder_cls.extras.label.estimates import acceptance

    summary = session.model.summary()
    if summary is None:
        return

    note(f"the model: {summary['accuracy']}")
    shown, num_shown = acceptance(session.labels.rows, is_random=False)
    hidden, num_hidden = acceptance(session.labels.rows, is_random=True)
    if num_shown or num_hidden:
        note(
            f"guesses that were the label: {shown:,} of {num_shown:,} that were shown, and "
            f"{hidden:,} of {num_hidden:,} for texts drawn at random, which were hidden"
        )
