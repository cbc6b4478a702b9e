"""Parse tokenizers, and tokenize texts into words or sub-words.

Special tokens have the first ids; in texts, their names are ordinary characters.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

from encoder_cls.text.tokens import (
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

# In scripts without spaces between words, each grapheme cluster is a word, with the consonants that U+17D2 and U+1039
# stack below it, and with the half of a Thai or Lao AM that NFKC parts. So is each emoji, flag or other picture.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_PICTURE, _FLAG, _WORD = r"\p{Extended_Pictographic}", r"\x{1F1E6}-\x{1F1FF}", r"\w\x{200C}\x{200D}"
_STACKED = rf"(?<=[\x{{17D2}}\x{{1039}}])(?=[{UNSPACED}])|(?<=[\x{{0E4D}}\x{{0ECD}}])(?=[\x{{0E32}}\x{{0EB2}}])"
WORDS = (
    rf"(?=[{UNSPACED}])(?:\X(?:{_STACKED}))*\X|(?=[{_PICTURE}])\X|[{_FLAG}]{{1,2}}"
    rf"|[{_WORD}&&[^{UNSPACED}{_PICTURE}]]+|[^{_WORD}\s{UNSPACED}{_PICTURE}{_FLAG}]+"
)
UNSPACED_RANGES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"  # about the same, for `re`
)
ASCII_WORD = re.compile(r"\w+|[^\w\s]+", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")

MOST_COUNTED = 1_000_000  # characters of a text, by `count_tokens`
NORMALIZERS = {"NFD", "StripAccents", "NFC", "NFKC", "Lowercase"}


def tokenize(tokenizer: Tokenizer, texts: Iterable[str], *, max_seq_len: int) -> TokenizedTexts:
    """Convert texts to token ids, `[CLS]` first, for an encoder that reads `max_seq_len` tokens of each."""
    indexed, words = index_tokens(token_reader(tokenizer), texts, max_seq_len=max_seq_len)
    return replace(indexed, word_ids=token_ids(words, tokenizer.token_to_id))


def count_tokens(tokenizer: Tokenizer, text: str) -> tuple[int, bool]:
    """The number of tokens, `[CLS]` included, and whether it is exact: a very long text is not read whole."""
    read = token_reader(tokenizer)([text[:MOST_COUNTED]], MOST_COUNTED + 1)
    return int(read.lengths[0]), len(text) <= MOST_COUNTED


def token_ids(words: Sequence[str], id_of: Callable[[str], int | None]) -> NDArray[np.int32]:
    """The ids of words, `[UNK]` for those that have none."""
    ids = [id_of(word) for word in words]
    return np.array([UNK_ID if number is None else number for number in ids], dtype=np.int32)


def token_reader(tokenizer: Tokenizer) -> TokenReader:
    """A function that reads words, unknown ones as they are written, or sub-words."""
    if isinstance(tokenizer.model, models.WordLevel):
        is_lowercase = lowercases(tokenizer)

        def words(text: str) -> list[str]:
            if text.isascii():
                return ASCII_WORD.findall(text.lower() if is_lowercase else text)
            return split_by_tokenizer(tokenizer, replace_surrogates(text))

        return lambda texts, most: _coded(
            [SPECIAL_TOKENS[CLS_ID], *words(text)][:most] for text in texts
        )

    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)

    def read_subwords(texts: Sequence[str], most_tokens: int) -> TokenChunk:
        encodings = tokenizer.encode_batch_fast([replace_surrogates(text) for text in texts])
        return _coded(
            [tokens[number] for number in encoding.ids[:most_tokens]] for encoding in encodings
        )

    return read_subwords


def _coded(token_lists: Iterable[list[str]]) -> TokenChunk:
    rows: dict[str, int] = {}
    coded = [[rows.setdefault(token, len(rows)) for token in tokens] for tokens in token_lists]
    indices = np.fromiter(chain.from_iterable(coded), dtype=np.int32)
    return TokenChunk(list(rows), indices, np.array([*map(len, coded)], dtype=np.int64))


def split_by_tokenizer(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text without surrogates, by the tokenizer's own normalizer and pre-tokenizer."""
    return [
        word
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(
            tokenizer.normalizer.normalize_str(text)
        )
    ]


def lowercases(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer converts letters to lower case."""
    return bool(tokenizer.normalizer.normalize_str("A") == "a")


def replace_surrogates(text: str) -> str:
    """Replace each surrogate, which no tokenizer can read, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


class Span(NamedTuple):
    """The characters of a token, `text[start:end]`, and the index of its word; None: of no word."""

    start: int
    end: int
    word: int | None


def token_spans(tokenizer: Tokenizer, text: str, *, max_seq_len: int) -> list[Span]:
    """The spans of the tokens that an encoder reads, without `[CLS]`.

    They are in order and cover whole characters, with their accents. Normalization may make several tokens of one
    character, such as a ligature: these have the same span.
    """
    read = text[: CHARACTERS_PER_TOKEN * max_seq_len]
    encoding = tokenizer.encode(replace_surrogates(read))
    tokens = list(zip(encoding.offsets, encoding.word_ids, strict=True))[1:max_seq_len]

    spans = []
    for number, ((start, end), word) in enumerate(tokens):
        next_start = tokens[number + 1][0][0] if number + 1 < len(tokens) else len(read)
        last = end
        while last < next_start and _continues_character(read[last]):
            last += 1
        spans.append(Span(start, last, word))
    return spans


def _continues_character(character: str) -> bool:
    """Whether a character is a part of the one before: an accent, or the rest of a decomposed Hangul syllable."""
    is_rest_of_syllable = "\u1160" <= character <= "\u11ff"
    return is_rest_of_syllable or unicodedata.combining(character) != 0


def parse_tokenizer(content: str) -> Tokenizer:
    """Parse the JSON of a tokenizer; a `ValueError` if it is not one as `tokenizer_trainer` makes them."""
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
    normalizing = {
        step["type"] for step in (parts["normalizer"] or {}).get("normalizers", [{"type": None}])
    }
    by_code_points = pre_tokenizers.Split(Regex(f"[{UNSPACED}]"), "isolated")  # in earlier models
    splitters = [
        *map(pre_tokenizer, TYPES),
        pre_tokenizers.Sequence([by_code_points, pre_tokenizers.Whitespace()]),
    ]
    known = [json.loads(it.__getstate__()) for it in splitters]
    if parts["pre_tokenizer"] not in known or not normalizing <= NORMALIZERS:
        # A foreign regular expression could take for ever.
        raise ValueError("it prepares texts in a way that no tokenizer of encoder-cls does")
    return with_cls_template(tokenizer)


def pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    """The splitter into words for one of the `TYPES`."""
    if kind in {"bpe", "unigram"}:
        # Into runs of letters and digits, and of punctuation: these models learn the words of unspaced scripts.
        return pre_tokenizers.Whitespace()
    return pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)


def with_cls_template(tokenizer: Tokenizer) -> Tokenizer:
    """Let sequences of a tokenizer start with `[CLS]`, and only `tokenize` truncate them."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", CLS_ID)]
    )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # Else "[PAD]" in a text would get the padding id.
    tokenizer.encode_special_tokens = True
    return tokenizer
