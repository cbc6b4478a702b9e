"""The command `encoder-cls init`: look through data, and write a config for it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from encoder_cls.cli.plan_text import time_line
from encoder_cls.errors import ConfigError, DataError, EncoderClsError
from encoder_cls.system.command_options import check_ending, data_overrides
from encoder_cls.system.libraries import check_training_installed
from encoder_cls.system.terminal import note, print_out
from encoder_cls.system.terminal_reporter import TerminalReporter

if TYPE_CHECKING:
    from encoder_cls.data.dataset import Dataset

# The keys of `data` that a person may choose; all others are found.
CHOICES = (
    "text_column",
    "label_column",
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

    from encoder_cls.config.loading import parsed_setting, run_name
    from encoder_cls.data.inspection.draft_config import draft_config
    from encoder_cls.data.inspection.findings import finding_lines
    from encoder_cls.data.inspection.inspect_data import inspect_data
    from encoder_cls.system.files import write_output

    chosen = {}
    for key, text in data_overrides(overrides, *CHOICES).items():
        chosen[key] = parsed_setting(f"data.{key}", text)

    config_file = output or Path(f"{run_name(_stem(source))}.yaml")
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


def explained(error: DataError, source: str) -> DataError:
    """Add to an error about a source all that was found in it, and how to go on.

    Args:
        error: the first error of reading the source.
        source: a file or folder.

    Returns:
        The same error if it is about another source, or if nothing more is found.
    """
    from encoder_cls.data.inspection.findings import finding_lines
    from encoder_cls.data.inspection.inspect_data import inspect_data
    from encoder_cls.data.source_files import files_named

    if not any(error.where.startswith(str(file)) for file in files_named(source)):
        return error
    try:
        inspection = inspect_data(source, {})
        lines = [str(error), *finding_lines(inspection)]
    except EncoderClsError:
        return error
    if inspection.problem:
        lines.append(inspection.problem)
    lines.append(f"to write a config for this data: encoder-cls init {quote(source)}")
    return DataError("\n".join(lines))


def _stem(source: str) -> str:
    """The name of a file or folder without its endings."""
    path = Path(source)
    if path.is_dir():
        return path.resolve().name
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _time_line(dataset: Dataset) -> str:
    """The time that a training with the default config takes."""
    from encoder_cls.config.schema import Config, DataConfig
    from encoder_cls.training.expected_time import expected_time_of_dataset

    config = Config(name="data", data=DataConfig(train="data"))
    expected = expected_time_of_dataset(dataset, config)
    return f"{time_line(expected)}; less with a GPU, and train.time_budget=5m would set a limit"
