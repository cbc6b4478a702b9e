"""Read a tokenizer from its file, and tokenize texts.

The special tokens have fixed ids and come first; typed by a user they are ordinary characters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

from encoder_cls.text.tokens import CHARACTERS_PER_TOKEN, CLS_ID, SPECIAL_TOKENS, UNK_ID, TokenizedTexts, index_tokens
from encoder_cls.text.words import replace_surrogates, token_reader

TYPES = ("word_level", "word_piece", "bpe", "unigram")  # whole words, and three sub-word models

# Scripts written without spaces between words: each character is a token of its own.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"

MOST_COUNTED = 1_000_000  # characters of a text whose tokens are counted for a person
NORMALIZERS = {"NFD", "StripAccents", "NFC", "NFKC", "Lowercase"}


def tokenize(tokenizer: Tokenizer, texts: Iterable[str], *, max_seq_len: int) -> TokenizedTexts:
    """Turn texts into token ids, `[CLS]` first, for an encoder that reads `max_seq_len` tokens of each."""
    found, words = index_tokens(token_reader(tokenizer), texts, max_seq_len=max_seq_len)
    return replace(found, word_ids=token_ids(words, tokenizer.token_to_id))


def count_tokens(tokenizer: Tokenizer, text: str) -> tuple[int, bool]:
    """The number of tokens, `[CLS]` counted, and whether these are all of a very long text."""
    read = token_reader(tokenizer)([text[:MOST_COUNTED]], MOST_COUNTED + 1)
    return int(read.lengths[0]), len(text) <= MOST_COUNTED


def token_ids(words: Sequence[str], id_of: Callable[[str], int | None]) -> NDArray[np.int32]:
    """The ids of words, `[UNK]` of those without."""
    ids = [id_of(word) for word in words]
    return np.array([UNK_ID if number is None else number for number in ids], dtype=np.int32)


def parse_tokenizer(content: str) -> Tokenizer:
    """Read a tokenizer from the text of its JSON file.

    Raises:
        ValueError: it is no tokenizer of `train_tokenizer`.
    """
    try:
        tokenizer = Tokenizer.from_str(content)
        parts = json.loads(tokenizer.to_str())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        raise ValueError(f"not a tokenizer: {error}") from None
    if [tokenizer.id_to_token(i) for i in range(len(SPECIAL_TOKENS))] != SPECIAL_TOKENS:
        raise ValueError("its first tokens are not " + ", ".join(SPECIAL_TOKENS))
    if sorted(tokenizer.get_vocab().values()) != list(range(tokenizer.get_vocab_size())):
        raise ValueError("its token ids are not 0, 1, 2, ...")
    normalizing = {step["type"] for step in (parts["normalizer"] or {}).get("normalizers", [{"type": None}])}
    if parts["pre_tokenizer"] not in _known_pre_tokenizers() or not normalizing <= NORMALIZERS:
        # A regular expression could be made to take for ever.
        raise ValueError("it prepares texts in a way that no tokenizer of encoder-cls does")
    return with_cls_template(tokenizer)


def _known_pre_tokenizers() -> list[Any]:
    tokenizers = []
    for kind in TYPES:
        tokenizer = Tokenizer(models.WordLevel())
        tokenizer.pre_tokenizer = pre_tokenizer(kind)
        tokenizers.append(json.loads(tokenizer.to_str())["pre_tokenizer"])
    return tokenizers


def pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    """The splitter into words of a tokenizer of one of the `TYPES`."""
    words = pre_tokenizers.Whitespace()  # runs of letters and digits, runs of punctuation
    if kind in {"bpe", "unigram"}:
        return words  # these find the words of unspaced scripts themselves
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(UNSPACED), "isolated"), words])


class Span(NamedTuple):
    """The place of a token in its text, in characters, and the number of its word."""

    start: int
    end: int
    word: int | None


def token_spans(tokenizer: Tokenizer, text: str, *, max_seq_len: int) -> list[Span]:
    """The places of the tokens that an encoder reads, without `[CLS]`."""
    kept = text[: CHARACTERS_PER_TOKEN * max_seq_len]
    read = replace_surrogates(kept)
    encoding = tokenizer.encode(read)
    found = zip(encoding.offsets, encoding.word_ids, strict=True)
    spans = [Span(start, end, word) for (start, end), word in found][1:max_seq_len]
    if len(read) == len(kept):
        return spans
    starts = _starts_in(kept, read)
    return [Span(starts[start], starts[end], word) for start, end, word in spans]


def _starts_in(text: str, read: str) -> list[int]:
    """The beginning in a text of each character of `replace_surrogates(text)`, which joins surrogate pairs; the end."""
    starts = [0]
    for character in read:
        is_pair = character > "\uffff" and text[starts[-1]] < "\ue000"
        starts.append(starts[-1] + (2 if is_pair else 1))
    return starts


def with_cls_template(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, set so that a text begins with `[CLS]`, and only `tokenize` truncates."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", CLS_ID)]
    )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # Without this a text that contains "[PAD]" would be given the padding id.
    tokenizer.encode_special_tokens = True
    return tokenizer
