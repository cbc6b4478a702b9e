"""Read a tokenizer from its file, split texts into words or sub-words, and tokenize them.

The special tokens have fixed ids and come first; typed by a user they are ordinary characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

from encoder_cls.text.token_arrays import (
    CHARACTERS_PER_TOKEN,
    CLS_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    TokenChunk,
    TokenizedTexts,
    TokenReader,
    index_tokens,
)

TYPES = ("word_level", "word_piece", "bpe", "unigram")  # whole words, and three sub-word models

# Of scripts written without spaces between words each grapheme cluster is a word: with the consonants that U+17D2 and
# U+1039 stack below it, and with the half of a Thai or Lao AM that NFKC parts. So is each emoji, flag or other picture.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_PICTURE, _FLAG, _WORD = r"\p{Extended_Pictographic}", r"\x{1F1E6}-\x{1F1FF}", r"\w\x{200C}\x{200D}"
_STACKED = rf"(?<=[\x{{17D2}}\x{{1039}}])(?=[{UNSPACED}])|(?<=[\x{{0E4D}}\x{{0ECD}}])(?=[\x{{0E32}}\x{{0EB2}}])"
WORDS = (
    rf"(?=[{UNSPACED}])(?:\X(?:{_STACKED}))*\X|(?=[{_PICTURE}])\X|[{_FLAG}]{{1,2}}"
    rf"|[{_WORD}&&[^{UNSPACED}{_PICTURE}]]+|[^{_WORD}\s{UNSPACED}{_PICTURE}{_FLAG}]+"
)
UNSPACED_RANGES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"  # about these, for Python
ASCII_WORD = re.compile(r"\w+|[^\w\s]+", re.ASCII)

MOST_COUNTED = 1_000_000  # characters of a text whose tokens are counted for a person
NORMALIZERS = {"NFD", "StripAccents", "NFC", "NFKC", "Lowercase"}


def tokenize(tokenizer: Tokenizer, texts: Iterable[str], *, max_seq_len: int) -> TokenizedTexts:
    """Turn texts into token ids, `[CLS]` first, for an encoder that reads `max_seq_len` tokens of each."""
    indexed, words = index_tokens(token_reader(tokenizer), texts, max_seq_len=max_seq_len)
    return replace(indexed, word_ids=token_ids(words, tokenizer.token_to_id))


def count_tokens(tokenizer: Tokenizer, text: str) -> tuple[int, bool]:
    """The number of tokens, `[CLS]` counted, and whether these are all of a very long text."""
    read = token_reader(tokenizer)([text[:MOST_COUNTED]], MOST_COUNTED + 1)
    return int(read.lengths[0]), len(text) <= MOST_COUNTED


def token_ids(words: Sequence[str], id_of: Callable[[str], int | None]) -> NDArray[np.int32]:
    """The ids of words, `[UNK]` of those without."""
    ids = [id_of(word) for word in words]
    return np.array([UNK_ID if number is None else number for number in ids], dtype=np.int32)


def token_reader(tokenizer: Tokenizer) -> TokenReader:
    """A reader of words, the unknown as written, or of pieces of words."""
    if isinstance(tokenizer.model, models.WordLevel):
        is_lowercase = lowercases(tokenizer)
        return lambda texts, most_tokens: _coded(
            [SPECIAL_TOKENS[CLS_ID], *_split_words(tokenizer, text, is_lowercase)][:most_tokens] for text in texts
        )
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)

    def read_subwords(texts: Sequence[str], most_tokens: int) -> TokenChunk:
        encodings = tokenizer.encode_batch_fast([replace_surrogates(text) for text in texts])
        return _coded([tokens[number] for number in encoding.ids[:most_tokens]] for encoding in encodings)

    return read_subwords


def _coded(token_lists: Iterable[list[str]]) -> TokenChunk:
    rows: dict[str, int] = {}
    coded = [[rows.setdefault(token, len(rows)) for token in tokens] for tokens in token_lists]
    indices = np.fromiter(chain.from_iterable(coded), dtype=np.int32)
    return TokenChunk(list(rows), indices, np.array([*map(len, coded)], dtype=np.int64))


def _split_words(tokenizer: Tokenizer, text: str, is_lowercase: bool) -> list[str]:
    """The words of a text, normalized."""
    if text.isascii():
        return ASCII_WORD.findall(text.lower() if is_lowercase else text)
    return split_by_tokenizer(tokenizer, replace_surrogates(text))


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
    starts = [0]  # in the text of each character that is read: surrogate pairs have become one
    for character in read:
        is_pair = character > "\uffff" and kept[starts[-1]] < "\ue000"
        starts.append(starts[-1] + (2 if is_pair else 1))
    tokens = list(zip(encoding.offsets, encoding.word_ids, strict=True))[1:max_seq_len]
    return [Span(starts[start], starts[end], word) for (start, end), word in tokens]


def parse_tokenizer(content: str) -> Tokenizer:
    """Read a tokenizer from the text of its JSON file.

    Raises:
        ValueError: it is not a tokenizer as `tokenizer_trainer` makes them.
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
    by_code_points = pre_tokenizers.Split(Regex(f"[{UNSPACED}]"), "isolated")  # in earlier models
    splitters = [*map(pre_tokenizer, TYPES), pre_tokenizers.Sequence([by_code_points, pre_tokenizers.Whitespace()])]
    known = [json.loads(it.__getstate__()) for it in splitters]
    if parts["pre_tokenizer"] not in known or not normalizing <= NORMALIZERS:
        # A regular expression could be made to take for ever.
        raise ValueError("it prepares texts in a way that no tokenizer of encoder-cls does")
    return with_cls_template(tokenizer)


def pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    """The splitter into words of a tokenizer of one of the `TYPES`."""
    if kind in {"bpe", "unigram"}:
        # Runs of letters and digits, runs of punctuation: these find the words of unspaced scripts themselves.
        return pre_tokenizers.Whitespace()
    return pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)


def with_cls_template(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, set so that `[CLS]` comes first, and only `tokenize` truncates."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", CLS_ID)]
    )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # Without this a text that contains "[PAD]" would be given the padding id.
    tokenizer.encode_special_tokens = True
    return tokenizer
