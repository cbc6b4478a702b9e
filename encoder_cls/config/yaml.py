"""Strict YAML 1.2: no tags, anchors or duplicate keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from encoder_cls.errors import ConfigError


def parse_yaml(text: str, *, source: str, keys: Sequence[str] = ()) -> Any:
    """Parse YAML as a person reads it: `1e-3` is a number, `no` is a word, a key given twice is an error.

    Args:
        text: the YAML.
        source: how to call it in a message.
        keys: those under which its value stands in a config; none: it is a config.

    Raises:
        ConfigError: naming the source and the line.
    """
    return _parsed(_PlainLoader, text, source, keys)


def parse_setting(text: str, *, source: str, keys: Sequence[str]) -> Any:
    """Parse the value of one setting: a text as it stands, unless it is null, in quotes or a whole list; else YAML.

    `#` begins no comment.

    Args:
        text: the value.
        source: how to call it in a message.
        keys: those under which it is in a config.

    Raises:
        ConfigError: naming the source and the line.
    """
    value, keys = text.strip(), tuple(keys)
    if keys in _SEPARATORS and len(text) == 1:  # a space, or what is null in YAML
        return text
    is_list = keys in _LISTS and value.startswith("[") and value.endswith("]")
    if keys not in _TEXTS or is_list or _NULL_OR_QUOTED.fullmatch(value):
        return _parsed(_SettingLoader, value, source, keys)
    return value


def _parsed(make_loader: type[_PlainLoader], text: str, source: str, keys: Sequence[str]) -> Any:
    try:
        loader = make_loader(text)
        node = loader.get_single_node()
        _keep_as_written(node, tuple(keys))
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{source}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from None


def to_yaml(values: dict[str, Any]) -> str:
    """Nested values as YAML text of which `parse_yaml` makes the same again."""
    return yaml.dump(values, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=100)


# Values that are texts, and mappings whose keys are: what looks like a number there stays as it is written.
_SEPARATORS = {("data", "delimiter"), ("data", "label_separator")}
_LISTS = {("data", "text_column"), ("data", "label_names")}
_FILES = {("data", key) for key in ("train", "validation", "test", "unlabelled", "corrections", "cache")}
_COLUMNS = {("data", "label_column"), ("data", "group_column")}
_TEXTS = {("name",), ("from_run",), ("data", "encoding")} | _SEPARATORS | _LISTS | _FILES | _COLUMNS
_TEXT_KEYS = {("train", "class_weights")}
_TEXT_TAG = "tag:yaml.org,2002:str"
_NULL_OR_QUOTED = re.compile(r"""|~|null|Null|NULL|'([^']|'')*'|"([^"\\]|\\.)*\"""", re.DOTALL)
_UNICODE_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
_NO_TEXT_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool")}


def _keep_as_written(node: yaml.Node | None, keys: tuple[str, ...]) -> None:
    """Make texts of the scalars that are texts in a config, such as `01` among class names."""
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
        raise yaml.scanner.ScannerError(None, None, "a value cannot start with ! unless in quotes", self.get_mark())

    def fetch_anchor(self) -> None:
        """Refuse `&name`: aliases of aliases can name more values than fit in memory."""
        raise yaml.scanner.ScannerError(None, None, "a value cannot start with & unless in quotes", self.get_mark())

    def fetch_alias(self) -> None:
        """Refuse `*name`, and so an unquoted glob."""
        raise yaml.scanner.ScannerError(None, None, "a value cannot start with * unless in quotes", self.get_mark())

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        """`010` is ten; YAML 1.1 has it as octal."""
        return int(self.construct_scalar(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; two equal keys are a mistake, not the last one's victory."""
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
    """A loader of one value, in which a comment would be a mistake."""

    def scan_to_next_token(self) -> None:
        """Refuse `#` behind a space, where PyYAML would leave out the rest."""
        while self.peek() == " ":
            self.forward()
        if self.peek() == "#":
            raise yaml.scanner.ScannerError(None, None, "# behind a space must be in quotes", self.get_mark())
        super().scan_to_next_token()


class _PlainDumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which also puts in quotes the words that `_PlainLoader` would read as numbers."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """In double quotes and escaped if it has a line break of Unicode: in single ones PyYAML reads another text."""
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
