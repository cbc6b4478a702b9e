"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.display import seconds_named
from encoder_cls.system.encodings import delimiter_named, encoding_named

RUNS = Path("runs")
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", metavar="DEVICE")]
ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="[CONFIG]", help="The config file. Default: the bundled example.", show_default=False),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="The same, as an option.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override one value: section.key=value, a text as it stands. Repeatable.", show_default=False
    ),
]


def the_config(argument: Path | None, option: Path | None) -> Path | None:
    """The config file, named by the argument or the option; `ConfigError` if by both."""
    if argument and option:
        raise ConfigError(f"{argument} and --config {option}: two config files; name one")
    return argument or option


def duration_named(text: str, *, option: str) -> float:
    """The seconds of a time such as `90s`, `30m` or `1.5h`; `ConfigError` if it is not a time."""
    try:
        return seconds_named(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text}: {error}") from None


def bad_rows_named(value: str) -> str:
    """Check what to do with rows that cannot be read: `error` or `skip`; else `ValueError`."""
    if value not in {"error", "skip"}:
        raise ValueError(f"{value!r} is neither error nor skip")
    return value


def _separator_named(value: str) -> str:
    if not value:
        raise ValueError("names no separator")
    return value


_PARSE = {
    "delimiter": delimiter_named,
    "encoding": encoding_named,
    "bad_rows": bad_rows_named,
    "label_separator": _separator_named,
}


def reading_settings(overrides: Sequence[str], *, known: Sequence[str]) -> dict[str, str]:
    """Parse how to read files, as in `--set data.encoding=windows-1252`, by the name of the value.

    Raises:
        ConfigError: a value is invalid, or not one of the `known`.
    """
    settings: dict[str, str] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        name = key.strip().removeprefix("data.")
        if not equals or not key.strip().startswith("data.") or name not in known:
            *keys, last = [f"data.{name}" for name in known]
            raise ConfigError(f"--set {override}: what can be set here is {', '.join(keys)} and {last}")
        try:
            settings[name] = _PARSE[name](value)
        except ValueError as error:
            raise ConfigError(f"--set data.{name}: {error}") from None
    return settings
