"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.display import seconds_named

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
RUNS = Path("runs")
BAD_ROWS = ("error", "skip")


def the_config(argument: Path | None, option: Path | None) -> Path | None:
    """The config file, however it is named.

    Raises:
        ConfigError: two are.
    """
    if argument and option:
        raise ConfigError(f"{argument} and --config {option}: two config files; name one")
    return argument or option


def duration_named(text: str, *, option: str) -> float:
    """The seconds of a time such as `90s`, `30m` or `1.5h`.

    Raises:
        ConfigError: it is none.
    """
    try:
        return seconds_named(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text}: {error}") from None


def reading_settings(overrides: Sequence[str], *, known: Sequence[str]) -> dict[str, str]:
    """How files are to be read, of `--set data.encoding=windows-1252` and the like, by the name of the value.

    Args:
        overrides: as they are written.
        known: which values can be set here.

    Raises:
        ConfigError: another value, or one that cannot be.
    """
    from encoder_cls.system.encodings import delimiter_named, encoding_named

    parse = {"delimiter": delimiter_named, "encoding": encoding_named, "bad_rows": bad_rows_named}
    parse["label_separator"] = _separator_named
    found: dict[str, str] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        name = key.strip().removeprefix("data.")
        if not equals or not key.strip().startswith("data.") or name not in known:
            keys = [f"data.{name}" for name in known]
            raise ConfigError(f"--set {override}: what can be set here is {', '.join(keys[:-1])} and {keys[-1]}")
        try:
            found[name] = parse[name](value)
        except ValueError as error:
            raise ConfigError(f"--set data.{name}: {error}") from None
    return found


def _separator_named(value: str) -> str:
    """What separates the labels of a text.

    Raises:
        ValueError: nothing does.
    """
    if not value:
        raise ValueError("names no separator")
    return value


def bad_rows_named(value: str) -> str:
    """What is done with rows that cannot be read.

    Raises:
        ValueError: nothing that is known.
    """
    if value not in BAD_ROWS:
        raise ValueError(f"{value!r} is neither {' nor '.join(BAD_ROWS)}")
    return value
