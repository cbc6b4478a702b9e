"""Load the config of a run from a YAML file and `--set` overrides."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from encoder_cls.config.checked_values import FIELDS, validated_config
from encoder_cls.config.data_paths import data_beside_config
from encoder_cls.config.label_files import with_label_files
from encoder_cls.config.schema import Config, types_in
from encoder_cls.errors import ConfigError
from encoder_cls.system.display import printable
from encoder_cls.system.yaml import NULL, parse_yaml

EXAMPLE_DATA = {
    "train": "example:train",
    "validation": "example:validation",
    "test": "example:test",
}


class _Override(NamedTuple):
    """A value, and the keys that lead to it, such as `["train", "epochs"]`."""

    keys: Sequence[str]
    value: Any


class _Origin(NamedTuple):
    """Values before they are overridden.

    Attributes:
        name: what messages call their place.
        run_name: if the values do not set one.
    """

    name: str
    run_name: str
    values: dict[str, Any]


def load_config(
    path: str | Path | None = None, overrides: Iterable[str] = (), *, from_run: Path | None = None
) -> Config:
    """Read a config file, and override some of its values.

    Args:
        path: a path of data in the file starts at the current folder or, if nothing is there, at
            that of the file. By default, the config is that of the bundled example.
        overrides: such as `train.epochs=5`. Without a config file, `data.train` replaces all data
            of the bundled example.
        from_run: a base run, whose sections `model` and `tokenizer`, and columns of texts and
            labels, fill in what this config does not set.

    Raises:
        ConfigError: the config is not valid; the message has a line for each fault.
    """
    path = Path(path) if path else None
    parsed_overrides = [_parsed_override(override) for override in overrides]
    origin = _origin(path, parsed_overrides, from_run)

    values = _overridden({"name": origin.run_name} | origin.values, parsed_overrides)
    if from_run:
        values["from_run"] = str(from_run)
    base_run = values.get("from_run")
    folder = path.parent if path else None
    if isinstance(base_run, str) and base_run:
        values = _with_inherited(values, origin.name, folder)

    values = with_label_files(values, folder=folder)
    return validated_config(values, source=origin.name)


def config_of(
    values: Mapping[str, Any], *, base: Config | None = None, source: str = "config"
) -> Config:
    """Make a config of values by dotted key, such as `{"train.epochs": 5}`.

    Others are those of `base`, by default the defaults of the schema. Messages call the values
    `source`.

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
    overridden = with_label_files(_overridden(base_values, overrides))
    return validated_config(overridden, source=source)


def _origin(path: Path | None, overrides: Sequence[_Override], from_run: Path | None) -> _Origin:
    if path:
        values = data_beside_config(_read_config_file(path), path.parent)
        return _Origin(str(path), run_name(path.stem), values)

    data = _overridden({}, overrides).get("data")
    if isinstance(data, dict) and "train" in data:
        return _Origin("--set", run_name(Path(str(data["train"])).stem), {})

    if from_run:
        raise ConfigError(
            f"--from {from_run}: the new data is missing; name it by --config or "
            "--set data.train=PATH"
        )
    return _Origin("bundled example", "example", {"data": EXAMPLE_DATA})


# Config files


def _read_config_file(path: Path) -> dict[str, Any]:
    try:
        return _parsed_config_file(path)
    except ConfigError:
        if not _looks_like_data(path):
            raise
    raise ConfigError(
        f"{path}: this is not a config; to train on its texts: --set data.train={path}"
    )


def _parsed_config_file(path: Path) -> dict[str, Any]:
    # A `ValueError` means that the file is not UTF-8, or that no file can have this name.
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


CONFIG_ENDINGS = (".yaml", ".yml", "")


def _looks_like_data(path: Path) -> bool:
    """Whether a path names a folder, or a file without the ending of a config."""
    with suppress(OSError, ValueError):
        return path.is_dir() or (path.is_file() and path.suffix.lower() not in CONFIG_ENDINGS)
    return False


# The largest number of characters of a run's name.
LONGEST_RUN_NAME = 100


def run_name(stem: str) -> str:
    """The name of a run, from that of a file, with dashes for signs other than `_`, `-` and `.`."""
    characters = []
    for character in stem:
        is_letter_or_mark = unicodedata.category(character)[0] in "LM"
        is_allowed = is_letter_or_mark or character.isdecimal() or character in "_-."
        characters.append(character if is_allowed else " ")

    words = "".join(characters).split()
    return "-".join(words).strip("-.")[:LONGEST_RUN_NAME] or "run"


# The base run


# The settings that a run takes from its base run, by section. New data usually has the columns of
# the base run's data, but it may be another kind of file, so its encoding is not inherited.
INHERITED_KEYS = {
    "model": tuple(FIELDS["model"]),
    "tokenizer": tuple(FIELDS["tokenizer"]),
    "data": (
        "text_column",
        "features",
        "label_column",
        "label_separator",
        "levels",
        "code_names",
        "none_label",
    ),
}


def _with_inherited(values: dict[str, Any], source: str, folder: Path | None) -> dict[str, Any]:
    # If nothing is missing, do not look for the base run. The config in a run folder has every
    # setting, and its base run may have been deleted.
    if all(_is_complete(name, values.get(name)) for name in INHERITED_KEYS):
        return values

    try:
        base = load_config(Path(values["from_run"]) / "config.yaml")
    except ConfigError as error:
        raise ConfigError(f"{source}: from_run: {error}") from None

    # The names in a new file of levels replace those of the base run.
    values = with_label_files(values, folder=folder, label_column=base.data.label_column)

    filled_in = {}
    for name, keys in INHERITED_KEYS.items():
        section = values.get(name) or {}
        # Leave a section that is not a mapping as it is: validation refuses it later.
        if isinstance(section, dict):
            base_section = getattr(base, name).model_dump(mode="json")
            inherited = {key: base_section[key] for key in keys}
            filled_in[name] = _merged(inherited, section)
    return values | filled_in


def _is_complete(name: str, section: Any) -> bool:
    return isinstance(section, dict) and section.keys() >= set(INHERITED_KEYS[name])


# Overrides


def _parsed_override(override: str) -> _Override:
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            f"--set {override}: write it as section.key=value, such as train.epochs=5"
        )
    return _Override(keys, parse_setting(dotted.strip(), text))


# The keys whose value may be a space, or `~`.
SEPARATOR_KEYS = ("data.delimiter", "data.label_separator")
_QUOTED = re.compile(r"""'([^']|'')*'|"([^"\\]|\\.)*\"""", re.DOTALL)


def parse_setting(key: str, text: str) -> Any:
    """Parse the value of `--set KEY=TEXT`, which is YAML.

    But a text such as a path is taken as it is written, unless it is null, in quotes or a whole
    list.

    Raises:
        ConfigError: the value is not valid YAML.
    """
    if key in SEPARATOR_KEYS and len(text) == 1:
        return text

    value = text.strip()
    if value in NULL:
        return None

    types = _types_of(key)
    is_list = tuple in types and value.startswith("[") and value.endswith("]")
    if str in types and not is_list and not _QUOTED.fullmatch(value):
        return value
    return parse_yaml(value, source=f"--set {key}")


def _types_of(key: str) -> list[Any]:
    """The types in an annotation, `tuple` and `str` for a list of texts."""
    section, _, name = key.partition(".")
    fields = FIELDS.get(section) if name else Config.model_fields
    field = (fields or {}).get(name or section)
    return types_in(field.annotation) if field else []


def _overridden(values: dict[str, Any], overrides: Iterable[_Override]) -> dict[str, Any]:
    for override in overrides:
        values = _with_value(values, override.keys, override.value)
    return values


def _with_value(values: Any, keys: Sequence[str], value: Any) -> Any:
    if not keys:
        return _merged(values, value)

    first, *others = keys
    nested = values if isinstance(values, dict) else {}
    return {**nested, first: _with_value(nested.get(first), others, value)}


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new

    merged = dict(old)
    for key, value in new.items():
        merged[key] = _merged(old.get(key), value)
    return merged
