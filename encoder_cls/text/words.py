"""Split texts into words or sub-words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer, models

from encoder_cls.text.tokens import CLS_ID, SPECIAL_TOKENS, TokenChunk, TokenReader

ASCII_WORD = re.compile(r"\w+|[^\w\s]+", re.ASCII)


def token_reader(tokenizer: Tokenizer) -> TokenReader:
    """A reader of words, the unknown as written, or of pieces of words."""
    if isinstance(tokenizer.model, models.WordLevel):
        return lambda texts, most_tokens: _read_words(tokenizer, texts, most_tokens)
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    return lambda texts, most_tokens: _read_subwords(tokenizer, tokens, texts, most_tokens)


def split_words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text, normalized."""
    text = replace_surrogates(text)
    if text.isascii():
        return ASCII_WORD.findall(text.lower() if lowercases(tokenizer) else text)
    return split_by_tokenizer(tokenizer, text)


def split_by_tokenizer(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text without half surrogate pairs, by the tokenizer's own normalizer and pre-tokenizer."""
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    if not tokenizer.pre_tokenizer:
        return [normal]
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]


def lowercases(tokenizer: Tokenizer) -> bool:
    """Whether its normalizer makes letters lower case."""
    return tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD in place of half surrogate pairs, which no tokenizer can read."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_words(tokenizer: Tokenizer, texts: Sequence[str], most_tokens: int) -> TokenChunk:
    return _coded([SPECIAL_TOKENS[CLS_ID], *split_words(tokenizer, text)][:most_tokens] for text in texts)


def _coded(token_lists: Iterable[list[str]]) -> TokenChunk:
    rows: dict[str, int] = {}
    coded = [[rows.setdefault(token, len(rows)) for token in tokens] for tokens in token_lists]
    indices = np.fromiter(chain.from_iterable(coded), dtype=np.int32)
    return TokenChunk(list(rows), indices, np.array([*map(len, coded)], dtype=np.int64))


def _read_subwords(tokenizer: Tokenizer, tokens: Sequence[str], texts: Sequence[str], most_tokens: int) -> TokenChunk:
    encodings = tokenizer.encode_batch_fast([replace_surrogates(text) for text in texts])
    return _coded([tokens[number] for number in encoding.ids[:most_tokens]] for encoding in encodings)
