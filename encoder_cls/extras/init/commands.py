"""The command `encoder-cls init`: look through data, and write a config for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.errors import ConfigError, DataError
from encoder_cls.system.command_options import check_ending, data_overrides
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import note, print_out
from encoder_cls.system.terminal_reporter import TerminalReporter

if TYPE_CHECKING:
    from encoder_cls import Dataset

# The keys of `data` that a person may choose; all others are found.
CHOICES = (
    "text_column",
    "label_column",
    "features",
    "group_column",
    "label_separator",
    "delimiter",
    "encoding",
    "sheet",
)


def init_command(
    source: Annotated[
        str, typer.Argument(metavar="FILE_OR_FOLDER", help="The file or folder of labelled texts.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(help="The config to write. Default: the name of the data, with .yaml."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help=f"What is known already: data.KEY=VALUE. Keys: {', '.join(CHOICES)}. Repeatable.",
        ),
    ] = None,
) -> None:
    """Look through data, say all that was found, and write a config that trains on it."""
    check_training_installed()

    from encoder_cls import parse_setting
    from encoder_cls.extras.init.draft_config import draft_config
    from encoder_cls.extras.init.findings import finding_lines
    from encoder_cls.extras.init.inspect_data import inspect_data
    from encoder_cls.system.files import write_output

    chosen = {}
    for key, text in data_overrides(overrides, *CHOICES).items():
        chosen[key] = parse_setting(f"data.{key}", text)

    config_file = output or Path(f"{_run_name(source)}.yaml")
    check_ending(config_file, ".yaml", ".yml")
    if config_file.exists():
        raise ConfigError(f"{config_file}: exists already; name another file with --output")

    with TerminalReporter() as reporter:
        reporter.working(f"reading {source}")
        inspection = inspect_data(source, chosen)
        reporter.working("")
    for line in finding_lines(inspection):
        print_out(f"{line}\n")
    if inspection.problem:
        raise DataError(source, inspection.problem)

    if inspection.dataset:
        print_out(f"{_time_line(inspection.dataset)}\n")
    write_output(config_file, draft_config(inspection).encode())
    command = f"encoder-cls train {quote(str(config_file))}"
    note(f"wrote {config_file}; read it, then run: {command}")


def _run_name(source: str) -> str:
    from encoder_cls import load_config

    path = Path(source).resolve()
    file = path.name.removesuffix(".gz")
    if path.is_dir():
        file = f"{path.name}.folder"
    return load_config(overrides=[f"data.train={file}"]).name


def _time_line(dataset: Dataset) -> str:
    from encoder_cls import config_of, expected_time

    config = config_of({"name": "data", "data.train": "data"})
    expected = expected_time(config, dataset)
    return f"time: {expected}; less with a GPU, and train.time_budget=5m would set a limit"


COMMANDS: dict[str, Callable[..., None]] = {"init": init_command}
