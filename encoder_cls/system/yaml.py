"""Read and write YAML without tags, anchors and duplicate keys.

Every value is the text that is written, until the schema turns it into a number or a truth value:
so `007` and `no` are names where a name is meant.
"""

from __future__ import annotations

import copy
import re
from functools import lru_cache
from typing import Any, NoReturn

import yaml

from encoder_cls.errors import ConfigError

# The ways to write that a key has no value.
NULL = frozenset({"", "~", "null", "Null", "NULL"})

_UNICODE_LINE_BREAK = re.compile("[\x85\u2028\u2029]")


def parse_yaml(text: str, *, source: str) -> Any:
    """Parse YAML into texts, lists and mappings; None is the value of a key without one.

    Raises:
        ConfigError: it is not valid YAML; the message names the source and the line.
    """
    return copy.deepcopy(_parsed(text, source))


# A run reads its config several times, and parsing it takes 10 ms.
@lru_cache(maxsize=16)
def _parsed(text: str, source: str) -> Any:
    try:
        return _TextLoader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        place = source
        if error.problem_mark:
            place = f"{source}:{error.problem_mark.line + 1}"
        raise ConfigError(f"{place}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from None


def to_yaml(values: dict[str, Any]) -> str:
    """YAML that `parse_yaml` reads back as the same texts."""
    return yaml.dump(values, Dumper=_TextDumper, sort_keys=False, allow_unicode=True, width=100)


class _TextLoader(yaml.BaseLoader):
    """PyYAML's loader of texts, which refuses what a config does not need."""

    def refuse_next_character(self) -> NoReturn:
        problem = f"a value cannot start with {self.peek()} unless in quotes"
        raise yaml.scanner.ScannerError(None, None, problem, self.get_mark())

    fetch_tag = fetch_anchor = fetch_alias = refuse_next_character

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse equal keys, of which PyYAML takes the last; `null` is None."""
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        seen: set[Any] = set()
        for key_node, value_node in node.value:
            key = self.construct_object(key_node)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} twice", key_node.start_mark
                )
            seen.add(key)

            is_plain = isinstance(value_node, yaml.ScalarNode) and value_node.style is None
            if is_plain and value_node.value in NULL:
                mapping[key] = None
        return mapping


class _TextDumper(yaml.SafeDumper):
    """PyYAML's safe dumper, but all texts stay texts."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Escape Unicode line breaks in double quotes."""
        style = '"' if _UNICODE_LINE_BREAK.search(text) else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_TextDumper.add_representer(str, _TextDumper.represent_text)
