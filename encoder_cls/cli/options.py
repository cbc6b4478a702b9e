"""Options, and JSON on standard output, that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from encoder_cls.errors import ConfigError
from encoder_cls.system.display import json_text
from encoder_cls.system.encodings import delimiter_named, encoding_named
from encoder_cls.system.terminal import print_out

RUNS = Path("runs")
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", metavar="DEVICE")]
ConfigFile = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG]", help="The config file. Default: the bundled example.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="The same, as an option.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override one value: section.key=value, a text taken literally. Repeatable."),
]
TrainedModel = Annotated[Path, typer.Argument(help="A run or model folder.")]
TextColumns = Annotated[
    list[str] | None,
    typer.Option("--text-column", help="The column with the texts. Repeatable. Default: as in training."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def the_config(argument: Path | None, option: Path | None, *, resumed: Path | None = None) -> Path | None:
    """The config file, named by the argument or the option (`ConfigError`: by both), else that of a run to resume."""
    if argument and option:
        raise ConfigError(f"{argument} and --config {option}: two config files; name one")
    if argument or option or resumed is None:
        return argument or option
    from encoder_cls.tracking.run_dir import RunDir

    run = RunDir(resumed)
    if not run.is_run():
        raise ConfigError(f"{run.path}: no run to go on with; name another --run-dir, or a --config to start")
    return run.config_file


def check_ending(output: Path | None, *endings: str) -> None:
    """Refuse an `--output` with another ending than these, with a `ConfigError`."""
    if output and output.suffix.lower() not in endings:
        raise ConfigError(f"--output {output}: no format is known by this ending; known: {' and '.join(endings)}")


def print_json(value: Mapping[str, Any]) -> None:
    """Print a mapping as readable JSON."""
    print_out(json_text(value, indent=2) + "\n\n")


def _one_of(**values: Any) -> Callable[[str], Any]:
    def named(value: str) -> Any:
        if value not in values:
            raise ValueError(f"{value!r} is neither {' nor '.join(values)}")
        return values[value]

    return named


def _named(value: str) -> str:
    if not value:
        raise ValueError("names nothing")
    return value


def _columns_named(value: str) -> tuple[str, ...]:
    is_list = value.startswith("[") and value.endswith("]")
    return tuple(_named(name.strip()) for name in (value[1:-1].split(",") if is_list else [value]))


_PARSE: dict[str, Callable[[str], Any]] = {
    "delimiter": delimiter_named,
    "encoding": encoding_named,
    "bad_rows": _one_of(error="error", skip="skip"),
    "label_separator": _named,
    "label_column": _named,
    "text_column": _columns_named,
    "fold_labels": _one_of(true=True, false=False),
}


def reading_settings(overrides: Sequence[str] | None, *known: str) -> dict[str, Any]:
    """Parse how to read files, such as `--set data.encoding=utf-16`, by name; `ConfigError` of others than `known`."""
    settings: dict[str, Any] = {}
    for override in overrides or ():
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
