"""The words of a file that a person who opens it can read."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

# The number of pieces between spaces whose words are cached.
MAX_PIECES = 1 << 18
# The bytes before the head of a safetensors file: the length of the head.
LENGTH_BYTES = 8


class WordSplitter:
    """Splits texts and the contents of files into words in the way of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words_of_piece = lru_cache(MAX_PIECES)(self._split)

    def words(self, texts: Iterable[str]) -> set[str]:
        """The distinct words of texts."""
        pieces = {piece for text in texts for piece in text.split()}
        return {word for piece in pieces for word in self._words_of_piece(piece)}

    def _split(self, piece: str) -> list[str]:
        # Half surrogate pairs, which JSON can hold, are no characters.
        text = piece.encode("utf-8", "replace").decode()
        normal = self._tokenizer.normalizer.normalize_str(text)
        words = [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(normal)]
        return [word for word in words if len(word) > 1 and any(map(str.isalnum, word))]


def readable_texts(path: Path) -> Iterator[str]:
    """The strings and keys of JSON, or all of a file; weights are no text."""
    with path.open("rb") as file:
        if path.suffix == ".safetensors":
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            yield from _strings_of_json(file.read(length).decode("utf-8", "ignore"))
            return
        text = file.read().decode("utf-8", "ignore")

    if path.suffix == ".json":
        yield from _strings_of_json(text)
    elif path.suffix == ".jsonl":
        for line in text.splitlines():
            yield from _strings_of_json(line)
    else:
        yield html.unescape(text)


def _strings_of_json(text: str) -> Iterator[str]:
    """The strings in JSON, and in JSON that is one of them; other text is one string.

    Numbers, such as the ids of tokens, say nothing of texts.
    """
    try:
        value = json.loads(text)
    except ValueError:
        yield text
    else:
        yield from _strings(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str) and value.startswith("{"):
        yield from _strings_of_json(value)
    elif isinstance(value, str):
        yield value
