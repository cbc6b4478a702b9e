"""Split many texts into words by Arrow's kernels: for training.

The words are those of the tokenizer, in a tenth of its time where texts are ASCII. `words` finds the same without
Arrow, whose import takes longer than a few texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer

from encoder_cls.text.char_ngrams import LONGEST_WORD
from encoder_cls.text.tokens import CLS_ID, SPECIAL_TOKENS, TokenChunk
from encoder_cls.text.words import lowercases, replace_surrogates, split_by_tokenizer

# Spaces around punctuation, and lower case, are all that normalizer and pre-tokenizer do to ASCII.
PUNCTUATION = r"([^\w\s]+)"

MOST_PIECES = 1 << 16  # remembered, in some 30 MB: the words of texts that are not ASCII


class ArrowWords:
    """Splits texts as a tokenizer of whole words does; Python sees each distinct word once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._lowercase = lowercases(tokenizer)
        self._tokenizer = tokenizer
        self._spaced_word = lru_cache(MOST_PIECES)(self._spaced_piece)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_once, (self._tokenizer.to_str(),)

    def read(self, texts: Sequence[str], most_tokens: int) -> TokenChunk:
        """See `TokenReader`."""
        words = self.split(texts)
        lengths: NDArray[Any] = np.from_dlpack(pc.list_value_length(words)).astype(np.int64)
        if (lengths > most_tokens).any():
            words, lengths = pc.list_slice(words, 0, most_tokens), np.minimum(lengths, most_tokens)
        coded = words.flatten().dictionary_encode()
        return TokenChunk(
            coded.dictionary.to_pylist(), np.asarray(np.from_dlpack(coded.indices), dtype=np.int32), lengths
        )

    def split(self, texts: Sequence[str]) -> pa.Array:
        """The tokens of each text, `[CLS]` and then its words, normalized: a list of strings a text."""
        spaced = self._spaced(_to_arrow([replace_surrogates(text) for text in texts]), others=self._spaced_by_pieces)
        with_cls = pc.binary_join_element_wise(*_to_arrow([SPECIAL_TOKENS[CLS_ID]]), spaced, *_to_arrow([" "]))
        return pc.ascii_split_whitespace(pc.ascii_rtrim_whitespace(with_cls))

    def _spaced(self, texts: pa.Array, *, others: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """The words of each text, joined by spaces; `others` does that for texts that are not ASCII."""
        is_ascii = pc.string_is_ascii(texts)
        ascii_texts, other_texts = texts.filter(is_ascii), texts.filter(pc.invert(is_ascii))
        if self._lowercase:
            ascii_texts = pc.ascii_lower(ascii_texts)
        ascii_texts = pc.replace_substring_regex(ascii_texts, pattern=PUNCTUATION, replacement=r" \1 ")
        texts = pc.replace_with_mask(texts, is_ascii, ascii_texts)
        return pc.replace_with_mask(texts, pc.invert(is_ascii), others(other_texts))

    def _spaced_by_pieces(self, texts: pa.Array) -> pa.Array:
        """The same of any text, piece by piece: nothing depends on what is beyond spaces."""
        pieces = pc.ascii_split_whitespace(texts)
        coded = pieces.flatten().dictionary_encode()
        distinct = self._spaced(coded.dictionary, others=self._spaced_one_by_one)
        spaced = type(pieces).from_arrays(pieces.offsets, distinct.take(coded.indices))
        return pc.binary_join(spaced, *_to_arrow([" "]))

    def _spaced_one_by_one(self, pieces: pa.Array) -> pa.Array:
        texts = pieces.to_pylist()
        return _to_arrow([self._spaced_word(it) if len(it) <= LONGEST_WORD else self._spaced_piece(it) for it in texts])

    def _spaced_piece(self, piece: str) -> str:
        return " ".join(split_by_tokenizer(self._tokenizer, piece))


@lru_cache(maxsize=1)
def _made_once(tokenizer: str) -> ArrowWords:
    return ArrowWords(Tokenizer.from_str(tokenizer))


def _to_arrow(texts: Sequence[str]) -> pa.Array:
    # `pa.array` would first load pandas, in more time than many a data set takes.
    contents = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, contents)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(contents)))
