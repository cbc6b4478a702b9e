"""Options that several commands share, their checks, and JSON on standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.display import json_text
from encoder_cls.system.encodings import delimiter_named, encoding_named
from encoder_cls.system.terminal import print_out

RUNS = Path("runs")
# The keys of `data` by which a command is told where data of a run has been moved to.
PLACES = ("train", "validation", "test", "unlabelled", "corrections")
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", metavar="DEVICE")]
ConfigFile = Annotated[
    Path | None,
    typer.Argument(metavar="[CONFIG]", help="The config file. Default: the bundled example."),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="The same, as an option.")]
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
        help="A column of the text. Repeatable: joined in order. Default: as in training.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def the_config(
    argument: Path | None, option: Path | None, *, resumed: Path | None = None
) -> Path | None:
    """The config file named by argument or option, or else that of a run to resume; `ConfigError` if there are two."""
    if argument and option:
        raise ConfigError(f"{argument} and --config {option}: two config files; name one")
    if argument or option or resumed is None:
        return argument or option
    from encoder_cls.run.run_folder import RunDir

    run = RunDir(resumed)
    if not run.is_run():
        raise ConfigError(
            f"{run.path}: no run to go on with; name another --run-dir, or a --config to start"
        )
    return run.config_file


def check_ending(output: Path | None, *endings: str) -> None:
    """Refuse an `--output` with another ending than these, with a `ConfigError`."""
    if output and output.suffix.lower() not in endings:
        raise ConfigError(
            f"--output {output}: no format is known by this ending; known: {' and '.join(endings)}"
        )


def print_json(value: Mapping[str, Any]) -> None:
    """Print a mapping as readable JSON."""
    print_out(json_text(value, indent=2) + "\n\n")


def _bad_rows_named(value: str) -> str:
    if value not in {"error", "skip"}:
        raise ValueError(f"{value!r} is neither error nor skip")
    return value


_PARSE = {"delimiter": delimiter_named, "encoding": encoding_named, "bad_rows": _bad_rows_named}


def reading_settings(overrides: Sequence[str] | None, *known: str) -> dict[str, Any]:
    """The values of `--set data.NAME=VALUE` by name, those of `_PARSE` parsed; `ConfigError` for names not `known`."""
    settings = {}
    for override in overrides or ():
        key, equals, value = override.partition("=")
        name = key.strip().removeprefix("data.")
        if not equals or not key.strip().startswith("data.") or name not in known:
            *names, last = [f"data.{name}" for name in known]
            raise ConfigError(
                f"--set {override}: only {', '.join(names)} and {last} can be set here"
            )
        try:
            settings[name] = _PARSE[name](value) if name in _PARSE else value
        except ValueError as error:
            raise ConfigError(f"--set data.{name}: {error}") from None
    return settings
