"""Load the config of a run: a YAML file and `--set` overrides become a frozen `Config`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.config.checked_values import FIELDS, validated_config
from encoder_cls.config.data_paths import data_beside_config
from encoder_cls.config.schema import Config
from encoder_cls.config.yaml import parse_setting, parse_yaml
from encoder_cls.errors import ConfigError
from encoder_cls.system.display import printable

EXAMPLE_DATA = {
    "train": "example:train",
    "validation": "example:validation",
    "test": "example:test",
}
# The sections that a run takes over from its base run.
INHERITED_SECTIONS = ("model", "tokenizer")
CONFIG_ENDINGS = (".yaml", ".yml", "")
LONGEST_RUN_NAME = 100


class _Override(NamedTuple):
    """A value, and the keys that lead to it from the top of a config."""

    keys: Sequence[str]
    value: Any


class _Origin(NamedTuple):
    """Values before they are overridden.

    Attributes:
        name: what messages call the place that the values come from.
        run_name: the name of the run, unless the values have one.
        values: the sections of a config.
    """

    name: str
    run_name: str
    values: dict[str, Any]


def load_config(
    path: Path | None = None, overrides: Iterable[str] = (), *, from_run: Path | None = None
) -> Config:
    """Read a config file, or else that of the bundled example, and override some of its values.

    Args:
        path: the file. The paths of data in it start at the current folder, or else at that of
            the file.
        overrides: as `section.key=value`; one of `data.train` replaces all data of the example.
        from_run: a base run, whose sections `model` and `tokenizer` fill in what is not set.

    Raises:
        ConfigError: something is wrong; the message has a line for each fault.
    """
    parsed_overrides = [_parsed_override(override) for override in overrides]
    origin = _origin(path, parsed_overrides, from_run)

    values = _overridden({"name": origin.run_name} | origin.values, parsed_overrides)
    if from_run:
        values["from_run"] = str(from_run)
    if isinstance(values.get("from_run"), str):
        values = _with_inherited(values, origin.name)

    return validated_config(values, source=origin.name)


def config_of(values: Mapping[str, Any], *, source: str, base: Config | None = None) -> Config:
    """Make a config of values by dotted key, such as `{"train.epochs": 5}`.

    All others are those of `base`, or else the defaults; `source` is what messages call the values.

    Raises:
        ConfigError: a key is unknown, or a value is invalid.
    """
    overrides = []
    for key, value in values.items():
        if not (isinstance(key, str) and all(key.split("."))):
            raise ConfigError(
                f"{source}: {key!r} is not a key; write it as section.key, such as train.epochs"
            )
        overrides.append(_Override(key.split("."), value))

    base_values = base.model_dump(mode="json") if base else {}
    return validated_config(_overridden(base_values, overrides), source=source)


def _origin(path: Path | None, overrides: Sequence[_Override], from_run: Path | None) -> _Origin:
    """Choose what is overridden: a file, nothing where other data is named, or the example."""
    if path:
        values = data_beside_config(_read_config_file(path), path.parent)
        return _Origin(str(path), _run_name(path.stem), values)

    data = _overridden({}, overrides).get("data")
    if isinstance(data, dict) and "train" in data:
        return _Origin("--set", _run_name(Path(str(data["train"])).stem), {})

    if from_run:
        raise ConfigError(
            f"--from {from_run}: the new data is missing; name it by --config or "
            "--set data.train=PATH"
        )
    return _Origin("bundled example", "example", {"data": EXAMPLE_DATA})


# Config files


def _read_config_file(path: Path) -> dict[str, Any]:
    """Read the sections of a config file."""
    try:
        return _parsed_config_file(path)
    except ConfigError:
        if not _looks_like_data(path):
            raise
    raise ConfigError(
        f"{path}: this is not a config; to train on its texts: --set data.train={path}"
    )


def _parsed_config_file(path: Path) -> dict[str, Any]:
    """Read and parse a config file, which must be a mapping of sections."""
    # A `ValueError` is of a file that is not UTF-8, or of a name that no file can have.
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{printable(str(path))}: cannot read the config: {reason}") from None

    values = parse_yaml(text, source=str(path))
    if not isinstance(values, dict):
        found = "nothing" if values is None else type(values).__name__
        raise ConfigError(f"{path}: expected sections such as `data:` and `model:`, found {found}")
    return values


def _looks_like_data(path: Path) -> bool:
    """Whether a path names a folder, or a file without an ending of configs."""
    with suppress(OSError, ValueError):
        return path.is_dir() or (path.is_file() and path.suffix.lower() not in CONFIG_ENDINGS)
    return False


def _run_name(stem: str) -> str:
    """Make a file's name, without its ending, a valid name of a run.

    All but letters with their marks, digits, `_`, `-` and `.` become dashes.
    """
    characters = []
    for character in stem:
        is_letter_or_mark = unicodedata.category(character)[0] in "LM"
        is_allowed = is_letter_or_mark or character.isdecimal() or character in "_-."
        characters.append(character if is_allowed else " ")

    words = "".join(characters).split()
    return "-".join(words).strip("-.")[:LONGEST_RUN_NAME] or "run"


# The base run


def _with_inherited(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Fill in the settings that the shared sections leave out from the base run."""
    own_sections = {section: values.get(section) or {} for section in INHERITED_SECTIONS}

    # The config in a run folder has every setting; its base run may be gone by now.
    if all(_is_complete(name, section) for name, section in own_sections.items()):
        return values

    try:
        base = load_config(Path(values["from_run"]) / "config.yaml")
    except ConfigError as error:
        raise ConfigError(f"{source}: from_run: {error}") from None

    filled_in = {}
    for name, section in own_sections.items():
        # Validation refuses a section that is not a mapping.
        if isinstance(section, dict):
            base_section = getattr(base, name).model_dump(mode="json")
            filled_in[name] = _merged(base_section, section)
    return values | filled_in


def _is_complete(name: str, section: Any) -> bool:
    """Whether a section has a value for each of its keys."""
    return isinstance(section, dict) and FIELDS[name].keys() <= section.keys()


# Overrides


def _parsed_override(override: str) -> _Override:
    """Split `section.key=value` into keys and value."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            f"--set {override}: write it as section.key=value, such as train.epochs=5"
        )
    return _Override(keys, parse_setting(text, source=f"--set {dotted}", keys=keys))


def _overridden(values: dict[str, Any], overrides: Iterable[_Override]) -> dict[str, Any]:
    """A copy of nested values with all overrides, of which later ones win."""
    for override in overrides:
        values = _with_value(values, override.keys, override.value)
    return values


def _with_value(values: Any, keys: Sequence[str], value: Any) -> Any:
    """A copy of nested values in which the one at these keys is replaced, or merged."""
    if not keys:
        return _merged(values, value)

    first, *others = keys
    nested = values if isinstance(values, dict) else {}
    return {**nested, first: _with_value(nested.get(first), others, value)}


def _merged(old: Any, new: Any) -> Any:
    """The new value; of two mappings, all values of both, the new ones where both have one."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new

    merged = dict(old)
    for key, value in new.items():
        merged[key] = _merged(old.get(key), value)
    return merged
