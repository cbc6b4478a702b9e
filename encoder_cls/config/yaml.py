"""Read and write a config as strict YAML 1.2, without tags, anchors and duplicate keys."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

import yaml

from encoder_cls.errors import ConfigError

# A key of the config in parts, such as `("data", "train")`.
KeyPath = tuple[str, ...]

# The settings that are texts: a value that looks like a number stays as it is written.
_SEPARATORS: set[KeyPath] = {("data", "delimiter"), ("data", "label_separator")}
_LISTS_OF_TEXTS: set[KeyPath] = {("data", "text_column"), ("data", "label_names")}
_TEXTS: set[KeyPath] = {
    ("name",),
    ("from_run",),
    ("data", "train"),
    ("data", "validation"),
    ("data", "test"),
    ("data", "unlabelled"),
    ("data", "corrections"),
    ("data", "cache"),
    ("data", "encoding"),
    ("data", "sheet"),
    ("data", "label_column"),
    ("data", "group_column"),
    ("data", "weight_column"),
    *_SEPARATORS,
    *_LISTS_OF_TEXTS,
}
# Mappings from texts to texts, and mappings whose keys are texts.
_TEXTS_BY_TEXT: set[KeyPath] = {("data", "label_map")}
_MAPPINGS_OF_TEXTS: set[KeyPath] = {("train", "class_weights"), *_TEXTS_BY_TEXT}
# The number of parts of a key inside a section.
_LONGEST_PATH = 2

_TAG = "tag:yaml.org,2002:"
_TEXT_TAG = f"{_TAG}str"
_OTHER_SCALAR_TAGS = {f"{_TAG}int", f"{_TAG}float", f"{_TAG}bool"}

_NULL_OR_QUOTED = re.compile(r"""|~|null|Null|NULL|'([^']|'')*'|"([^"\\]|\\.)*\"""", re.DOTALL)
_UNICODE_LINE_BREAK = re.compile("[\x85\u2028\u2029]")


def parse_yaml(text: str, *, source: str, path: KeyPath = ()) -> Any:
    """Parse a config, or the part of it at the key `path`, as YAML 1.2.

    So `1e-3` is a number and `no` is a word. A repeated key is an error.

    Raises:
        ConfigError: the text is not valid YAML; the message names the source and the line.
    """
    return copy.deepcopy(_parsed(text, source, path))


# A run reads its config several times, and parsing it takes 10 ms.
@lru_cache(maxsize=16)
def _parsed(text: str, source: str, path: KeyPath) -> Any:
    try:
        loader = _PlainLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _keep_texts_as_written(node, path)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        place = source
        if error.problem_mark:
            place = f"{source}:{error.problem_mark.line + 1}"
        raise ConfigError(f"{place}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from None


def parse_setting(text: str, *, source: str, keys: Sequence[str]) -> Any:
    """Parse the value of one setting of `--set`.

    A setting that is a text is taken as it is written, unless the value is null, in quotes or a
    whole list. All other values are parsed as YAML.
    """
    path = tuple(keys)
    value = text.strip()

    # Take a single character as a separator, before white space is removed and YAML is parsed: it
    # may be a space, or `~`, which is null in YAML.
    if path in _SEPARATORS and len(text) == 1:
        return text

    is_list = path in _LISTS_OF_TEXTS and value.startswith("[") and value.endswith("]")
    is_plain = not is_list and not _NULL_OR_QUOTED.fullmatch(value)
    if path in _TEXTS and is_plain:
        return value
    return parse_yaml(value, source=source, path=path)


def to_yaml(values: dict[str, Any]) -> str:
    """Write nested values as YAML text, which `parse_yaml` reads back unchanged."""
    return yaml.dump(values, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=100)


def _keep_texts_as_written(node: yaml.Node, path: KeyPath) -> None:
    """Turn scalars into texts if the config expects a text, such as `01` among class names."""
    if isinstance(node, yaml.MappingNode) and len(path) < _LONGEST_PATH:
        for key, value in node.value:
            _keep_texts_as_written(value, (*path, str(key.value)))
        return

    if path not in _TEXTS and path not in _MAPPINGS_OF_TEXTS:
        return

    is_list = isinstance(node, yaml.SequenceNode)
    if is_list:
        nodes = node.value
    elif isinstance(node, yaml.MappingNode):
        nodes = [key for key, _ in node.value]
        if path in _TEXTS_BY_TEXT:
            nodes += [value for _, value in node.value]
    else:
        nodes = [node]

    for text_node in nodes:
        if not isinstance(text_node, yaml.ScalarNode):
            continue
        # In a list, `null` is a name like any other. As the value of a key, it means no value.
        is_null_name = is_list and text_node.value == "null"
        if is_null_name or text_node.tag in _OTHER_SCALAR_TAGS:
            text_node.tag = _TEXT_TAG


class _PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the core schema of YAML 1.2 instead of the schema of YAML 1.1."""

    # Replace the patterns of YAML 1.1, which would be inherited; those of YAML 1.2 are added below.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def fetch_tag(self) -> NoReturn:
        """Refuse tags, since PyYAML raises errors of any type if a value does not fit its tag."""
        self._refuse_next_character()

    def fetch_anchor(self) -> NoReturn:
        """Refuse anchors."""
        self._refuse_next_character()

    def fetch_alias(self) -> NoReturn:
        """Refuse aliases, since a short text with aliases can have more values than memory."""
        self._refuse_next_character()

    def _refuse_next_character(self) -> NoReturn:
        problem = f"a value cannot start with {self.peek()} unless in quotes"
        raise yaml.scanner.ScannerError(None, None, problem, self.get_mark())

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a mapping with equal keys, of which PyYAML would take the last."""
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
        """Put a text with Unicode line breaks into double quotes, which escape line breaks.

        From single quotes PyYAML would read another text.
        """
        style = '"' if _UNICODE_LINE_BREAK.search(text) else None
        return self.represent_scalar(_TEXT_TAG, text, style=style)


def _decimal(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """Read an integer as decimal, such as `010` as ten, which YAML 1.1 would read as octal."""
    return int(loader.construct_scalar(node))


# The scalars of the YAML 1.2 core schema: tag, pattern, and the first characters to try it on.
_SCALARS = (
    ("bool", "true|True|TRUE|false|False|FALSE", ["t", "T", "f", "F"]),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", "[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+0123456789.")),
)
for _name, _pattern, _first_characters in _SCALARS:
    _regex = re.compile(rf"^(?:{_pattern})$")
    _PlainLoader.add_implicit_resolver(f"{_TAG}{_name}", _regex, _first_characters)
    _PlainDumper.add_implicit_resolver(f"{_TAG}{_name}", _regex, _first_characters)

_PlainLoader.add_constructor(f"{_TAG}int", _decimal)
_PlainDumper.add_representer(str, _PlainDumper.represent_text)
