"""Strict YAML 1.2: no tags, anchors or duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import yaml

from encoder_cls.errors import ConfigError


def parse_yaml(text: str, *, source: str) -> Any:
    """Parse a config as a person reads it: `1e-3` is a number, `no` is a word, a repeated key is an error.

    A `ConfigError` names the source and the line.
    """
    return _parsed(_PlainLoader, text, source, ())


def parse_setting(text: str, *, source: str, keys: Sequence[str]) -> Any:
    """Parse the value of one setting: a text as written, unless it is null, in quotes or a whole list; else YAML."""
    value, keys = text.strip(), tuple(keys)
    if keys in _SEPARATORS and len(text) == 1:  # a space, or what is null in YAML
        return text
    is_list = keys in _LISTS and value.startswith("[") and value.endswith("]")
    if keys not in _TEXTS or is_list or _NULL_OR_QUOTED.fullmatch(value):
        return _parsed(_SettingLoader, value, source, keys)
    return value


def to_yaml(values: dict[str, Any]) -> str:
    """Nested values as YAML text that `parse_yaml` reads back as they were."""
    return yaml.dump(values, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=100)


def _parsed(make_loader: type[_PlainLoader], text: str, source: str, keys: tuple[str, ...]) -> Any:
    try:
        loader = make_loader(text)
        node = loader.get_single_node()
        _keep_as_written(node, keys)
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from None


# Settings that are texts: what looks like a number there stays as it is written.
_SEPARATORS = {("data", "delimiter"), ("data", "label_separator")}
_LISTS = {("data", "text_column"), ("data", "label_names")}
_PATHS = ("train", "validation", "test", "unlabelled", "corrections", "cache")
_OTHERS = ("encoding", "label_column", "group_column")
_TEXTS = {("name",), ("from_run",)} | _SEPARATORS | _LISTS | {("data", key) for key in (*_PATHS, *_OTHERS)}
_TEXT_KEYS = {("train", "class_weights")}  # mappings whose keys are texts
_TEXT_TAG = "tag:yaml.org,2002:str"
_NULL_OR_QUOTED = re.compile(r"""|~|null|Null|NULL|'([^']|'')*'|"([^"\\]|\\.)*\"""", re.DOTALL)
_UNICODE_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
_NO_TEXT_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool")}


def _keep_as_written(node: yaml.Node | None, keys: tuple[str, ...]) -> None:
    """Keep scalars as texts where the config expects texts, such as `01` among class names."""
    if isinstance(node, yaml.MappingNode) and len(keys) < 2:
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                _keep_as_written(value, (*keys, key.value))
    elif isinstance(node, yaml.MappingNode) and keys in _TEXT_KEYS:
        for key, _ in node.value:
            _as_text(key)
    elif isinstance(node, yaml.SequenceNode) and keys in _TEXTS:
        for item in node.value:
            _as_text(item)
            if item.value == "null":  # in a list a name; alone, no value
                item.tag = _TEXT_TAG
    elif keys in _TEXTS:
        _as_text(node)


def _as_text(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.ScalarNode) and node.tag in _NO_TEXT_TAGS:
        node.tag = _TEXT_TAG


class _PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the YAML 1.2 core schema in place of YAML 1.1's surprises."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name

    def fetch_tag(self) -> None:
        """Refuse `!!int` and the like: PyYAML raises anything at all on a value that does not fit its tag."""
        self._refuse("a value cannot start with ! unless in quotes")

    def fetch_anchor(self) -> None:
        """Refuse `&name`: aliases of aliases can name more values than fit in memory."""
        self._refuse("a value cannot start with & unless in quotes")

    def fetch_alias(self) -> None:
        """Refuse `*name`, and so an unquoted glob."""
        self._refuse("a value cannot start with * unless in quotes")

    def _refuse(self, problem: str) -> NoReturn:
        raise yaml.scanner.ScannerError(None, None, problem, self.get_mark())

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        """Read `010` as ten, which is octal in YAML 1.1."""
        return int(self.construct_scalar(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse equal keys, of which PyYAML takes the last."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool | None):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain value", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class _SettingLoader(_PlainLoader):
    """Loads the value of a `--set`, which has no comments."""

    def scan_to_next_token(self) -> None:
        """Refuse `#` behind a space, where PyYAML would drop the rest."""
        while self.peek() == " ":
            self.forward()
        if self.peek() == "#":
            self._refuse("# behind a space must be in quotes")
        super().scan_to_next_token()


class _PlainDumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which quotes the words that `_PlainLoader` would read as numbers."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escape line breaks of Unicode, in double quotes: in single ones PyYAML reads another text."""
        return self.represent_scalar(_TEXT_TAG, text, style='"' if _UNICODE_LINE_BREAK.search(text) else None)


_PlainDumper.add_representer(str, _PlainDumper.represent_text)
_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_decimal)
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
):
    for _yaml in (_PlainLoader, _PlainDumper):
        _yaml.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))
