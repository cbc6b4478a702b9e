"""Strict YAML 1.2: no tags, anchors or duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import yaml

from encoder_cls.errors import ConfigError

# Settings that are texts: what looks like a number there stays as it is written.
_SEPARATORS = {("data", "delimiter"), ("data", "label_separator")}
_LISTS = {("data", "text_column"), ("data", "label_names")}
_PATHS = ("train", "validation", "test", "unlabelled", "corrections", "cache")
_OTHERS = ("encoding", "label_column", "group_column")
_TEXTS = (
    {("name",), ("from_run",)}
    | _SEPARATORS
    | _LISTS
    | {("data", key) for key in (*_PATHS, *_OTHERS)}
)
_TEXT_KEYS = {("train", "class_weights")}  # mappings whose keys are texts
_TEXT_TAG = "tag:yaml.org,2002:str"
_NULL_OR_QUOTED = re.compile(r"""|~|null|Null|NULL|'([^']|'')*'|"([^"\\]|\\.)*\"""", re.DOTALL)
_UNICODE_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
_NO_TEXT_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool")}


def parse_yaml(text: str, *, source: str, keys: tuple[str, ...] = ()) -> Any:
    """Parse a config, or its part at these keys: `1e-3` is a number, `no` is a word, a repeated key is an error.

    A `ConfigError` names the source and the line.
    """
    try:
        loader = _PlainLoader(text)
        node = loader.get_single_node()
        _keep_as_written(node, keys)
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from None


def parse_setting(text: str, *, source: str, keys: Sequence[str]) -> Any:
    """Parse the value of one setting: a text as written, unless it is null, in quotes or a whole list; else YAML."""
    value, keys = text.strip(), tuple(keys)
    if keys in _SEPARATORS and len(text) == 1:  # a space, or what is null in YAML
        return text
    is_list = keys in _LISTS and value.startswith("[") and value.endswith("]")
    if keys in _TEXTS and not is_list and not _NULL_OR_QUOTED.fullmatch(value):
        return value
    return parse_yaml(value, source=source, keys=keys)


def to_yaml(values: dict[str, Any]) -> str:
    """Write nested values as YAML text that `parse_yaml` reads back unchanged."""
    return yaml.dump(values, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=100)


def _keep_as_written(node: Any, keys: tuple[str, ...]) -> None:
    """Keep scalars as texts where the config expects texts, such as `01` among class names."""
    is_list, is_mapping = isinstance(node, yaml.SequenceNode), isinstance(node, yaml.MappingNode)
    if is_mapping and len(keys) < 2:
        for key, value in node.value:
            _keep_as_written(value, (*keys, str(key.value)))
    elif keys in _TEXTS | _TEXT_KEYS:
        scalars = (
            [key for key, _ in node.value] if is_mapping else node.value if is_list else [node]
        )
        for scalar in filter(lambda it: isinstance(it, yaml.ScalarNode), scalars):
            if scalar.tag in _NO_TEXT_TAGS or (
                is_list and scalar.value == "null"
            ):  # alone it is no value
                scalar.tag = _TEXT_TAG


class _PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the YAML 1.2 core schema instead of that of YAML 1.1."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name

    def _refuse(self) -> NoReturn:
        problem = f"a value cannot start with {self.peek()} unless in quotes"
        raise yaml.scanner.ScannerError(None, None, problem, self.get_mark())

    # PyYAML raises anything at all on a value that does not fit its tag; aliases can name more than fits in memory.
    fetch_tag = fetch_anchor = fetch_alias = _refuse

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse equal keys, of which PyYAML takes the last."""
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} twice", key_node.start_mark
                )
            seen.add(key)
        return mapping


class _PlainDumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes the words that `_PlainLoader` would read as numbers."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escape line breaks of Unicode, in double quotes: in single ones PyYAML reads another text."""
        return self.represent_scalar(
            _TEXT_TAG, text, style='"' if _UNICODE_LINE_BREAK.search(text) else None
        )


_PlainDumper.add_representer(str, _PlainDumper.represent_text)


def _decimal(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """Read `010` as ten; in YAML 1.1 it is octal."""
    return int(loader.construct_scalar(node))


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _decimal)
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
):
    for _yaml in (_PlainLoader, _PlainDumper):
        _yaml.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
        )
