"""Options of several commands, and checks of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.encodings import delimiter_named, encoding_named
from encoder_cls.system.files import stream_named
from encoder_cls.system.json_values import json_text
from encoder_cls.system.libraries import check_excel_installed
from encoder_cls.system.terminal import be_quiet, print_out

RUNS = Path("runs")
# The keys of `data` that name files or folders.
SOURCE_KEYS = ("train", "validation", "test", "unlabelled", "corrections")

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", metavar="DEVICE")]
ConfigArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[CONFIG]", help="The config file. Default: the bundled example."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The config file, as an option.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a config value: section.key=value; text needs no YAML quotes. Repeatable.",
    ),
]
TrainedModel = Annotated[Path, typer.Argument(help="A run or model folder.")]
TextColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--text-column",
        help="A column with the text. Repeatable: the texts of several columns are joined in this "
        "order. Default: as in training.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        help="No progress and no notes: print the report or result, warnings and errors only.",
        callback=lambda is_wanted: is_wanted and be_quiet(shows_warnings=True),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def chosen_config_file(argument: Path | None, option: Path | None) -> Path | None:
    """The config file of a command; None is the bundled example.

    Raises:
        ConfigError: it is given twice, as an argument and by `--config`.
    """
    if argument and option:
        raise ConfigError(f"{argument} and --config {option}: two config files; name one")
    return argument or option


EXCEL_ENDING = ".xlsx"


def check_ending(output: Path | None, *endings: str) -> None:
    """Check the ending of `--output`.

    Raises:
        ConfigError: it is none of these, or needs a library for Excel that is not installed.
    """
    if output is None:
        return
    ending = output.suffix.lower()
    if ending not in endings:
        *others, last = endings
        known = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"--output {output}: the name must end with {known}")
    if ending == EXCEL_ENDING:
        check_excel_installed(f"--output {output}")


def check_is_new(output: Path | None) -> None:
    """Raise a `ConfigError` if an output is a file, in which a person may have filled in labels."""
    is_named_file = output is not None and output.is_file() and stream_named(output) is None
    if is_named_file:
        raise ConfigError(f"{output}: exists already; name another file with --output")


def data_overrides(overrides: Sequence[str] | None, *allowed: str) -> dict[str, Any]:
    """Parse options `--set data.KEY=VALUE`.

    Raises:
        ConfigError: a key is not `allowed`, or its value is invalid.
    """
    values: dict[str, Any] = {}
    for override in overrides or ():
        name, equals, text = override.partition("=")
        section, _, key = name.strip().partition(".")
        if not equals or section != "data" or key not in allowed:
            raise ConfigError(f"--set {override}: only {_listed_keys(allowed)} can be set here")

        check = _CHECKS.get(key, _unchecked)
        try:
            values[key] = check(text)
        except ValueError as error:
            raise ConfigError(f"--set data.{key}: {error}") from None
    return values


def _listed_keys(keys: Sequence[str]) -> str:
    *others, last = [f"data.{key}" for key in keys]
    return f"{', '.join(others)} and {last}"


def _unchecked(value: str) -> str:
    return value


def _bad_rows_named(value: str) -> str:
    if value not in {"error", "skip"}:
        raise ValueError(f"{value!r} is neither 'error' nor 'skip'")
    return value


def _source_named(value: str) -> str:
    if not value:
        raise ValueError("names no file or folder")
    return value


# Functions that return a valid value of a key, and raise a `ValueError` for an invalid value.
_CHECKS: dict[str, Callable[[str], str]] = {
    "delimiter": delimiter_named,
    "encoding": encoding_named,
    "bad_rows": _bad_rows_named,
    **dict.fromkeys(SOURCE_KEYS, _source_named),
}


def print_json(value: Mapping[str, Any]) -> None:
    """Print a mapping as indented JSON."""
    print_out(json_text(value, indent=2) + "\n\n")
