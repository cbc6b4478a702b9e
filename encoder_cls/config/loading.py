"""One YAML file in, one `Config` out; or one line for each field that is wrong, naming file and field."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from encoder_cls.config.schema import Config
from encoder_cls.config.sources import found_beside
from encoder_cls.config.yaml_dialect import parse_yaml
from encoder_cls.errors import ConfigError

EXAMPLE: dict[str, Any] = {
    "name": "example",
    "data": {"train": "example:train", "validation": "example:validation", "test": "example:test"},
}


# What pydantic says of these would name its own classes, or a pattern.
IN_PLAIN_WORDS = {
    "model_type": "its values belong below it, each on a line of its own with spaces before it",
    "tuple_type": "Input should be a list, such as [a, b]",
    "string_pattern_mismatch": "Input should be letters, digits, `_`, `-` and `.`, the first no `-` or `.`",
}


def load_config(path: Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a config file (none: the bundled example's config) and apply `section.key=value` overrides.

    Data that the current folder does not have is looked for beside the file; in overrides paths start at the former.

    Raises:
        ConfigError: the file cannot be read, is no YAML mapping, or a field is unknown or out of range;
            the message names the file and each field.
    """
    source = str(path) if path else "bundled example"
    values = parse_yaml(_read_text(path), source=source) if path else EXAMPLE
    if not isinstance(values, dict):
        found = "nothing" if values is None else type(values).__name__
        raise ConfigError(f"{source}: expected sections such as `data:` and `model:`, found {found}")
    if path:
        values = found_beside(values, path.parent)
    values = {"name": _run_name(path.stem) if path else "example"} | values
    for override in overrides:
        values = _with_override(values, override)
    return _validated(values, source)


def config_of(values: Mapping[str, Any], *, source: str) -> Config:
    """The config of values by dotted key, such as `{"train.epochs": 5}`.

    Args:
        values: by key.
        source: what to call them in a message.

    Raises:
        ConfigError: a field is unknown or out of range; the message names each.
    """
    nested: dict[str, Any] = {}
    for dotted, value in values.items():
        keys = dotted.split(".") if isinstance(dotted, str) else [""]
        if not all(keys):
            raise ConfigError(f"{source}: {dotted!r} is no key; write it as section.key, such as train.epochs")
        nested = _with_value(nested, keys, value)
    return _validated(nested, source)


def _validated(values: dict[str, Any], source: str) -> Config:
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(error, source))) from None


def _run_name(stem: str) -> str:
    """A name for a run, made of a file's: what no name may hold becomes a dash."""
    allowed = (c if c in "-." or unicodedata.category(c) in _NAME_CATEGORIES else " " for c in stem)
    return "-".join("".join(allowed).split()).strip("-.")[:100] or "run"


# Letters with their marks, digits, underscores: of all that pydantic's pattern for a name matches, in any script.
_NAME_CATEGORIES = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Pc"}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the config: {error.strerror}") from None


def _with_override(values: dict[str, Any], override: str) -> dict[str, Any]:
    """A copy of nested values in which `section.key=value` holds."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {override}: write it as section.key=value, such as train.epochs=5")
    if keys == ["data", "delimiter"] and len(text) == 1:  # which YAML may have another use for
        return _with_value(values, keys, text)
    return _with_value(values, keys, parse_yaml(text, source=f"--set {dotted}", keys=keys))


def _with_value(values: dict[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy of nested values in which one has another value."""
    for key in reversed(keys[1:]):
        value = {key: value}
    return _merged(values, {keys[0]: value})


def _merged(values: Any, changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(values) if isinstance(values, dict) else {}
    for key, change in changes.items():
        nested = isinstance(change, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], change) if nested else change
    return merged


def _explain(error: ValidationError, source: str) -> Iterator[str]:
    """One line for each faulty field, naming the nearest right key where one was misspelt."""
    explained: set[str] = set()
    for fault in error.errors():
        path = [str(part) for part in fault["loc"]] or ["a key"]  # one that is no Unicode is not named
        if fault["type"] == "literal_error" and isinstance(fault["input"], dict) and len(path) > 2:
            continue  # class_weights by name: the fault is in the mapping, and follows
        # Each member of a union reports its own fault under its own name; the field is what the user wrote.
        where = ".".join(path[:2]) if path[0] in Config.model_fields else path[0]
        if where in explained:
            continue
        explained.add(where)
        if fault["type"] == "extra_forbidden":
            message = f"unknown key{_nearest(path)}"
        elif fault["type"] == "missing":
            message = "is required"
        else:
            message = IN_PLAIN_WORDS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
            if not isinstance(fault["input"], dict):
                message += f" (found {str(fault['input'])[:60]!r})"
        yield f"{source}: {where if where.isprintable() else repr(where)}: {message}"


def _nearest(path: list[str]) -> str:
    section: Any = Config
    for part in path[:-1]:
        section = section.model_fields[part].annotation
    homes = [
        f"{name}.{path[-1]}"
        for name, field in Config.model_fields.items()
        if path[-1] in getattr(field.annotation, "model_fields", {})
    ]
    nearest = homes or difflib.get_close_matches(path[-1], section.model_fields, n=1, cutoff=0.5)
    return f"; did you mean {' or '.join(nearest)}?" if nearest else f"; known: {', '.join(section.model_fields)}"
