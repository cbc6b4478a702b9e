"""Parse tokenizers, and tokenize texts into words or sub-words.

Special tokens have the first ids; their names in a text, such as "[PAD]", are tokenized like other
characters.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from encoder_cls.system.row_text import plain_text, readable_row, row_parts
from encoder_cls.text.checked_texts import check_are_several
from encoder_cls.text.row_tokens import (
    feature_name,
    kind_of_token,
    reader_of_rows,
    row_form,
    token_of_other,
)
from encoder_cls.text.tokens import (
    CHARACTERS_PER_TOKEN,
    CLS_ID,
    FEATURE,
    SPECIAL_TOKENS,
    UNK_ID,
    TokenChunk,
    TokenizedTexts,
    TokenReader,
    index_tokens,
)
from encoder_cls.text.word_pattern import ASCII_WORD, PICTURES, WORDS, continues_character

# The types of tokenizers: one for whole words, and three for sub-words.
TYPES = ("word_level", "word_piece", "bpe", "unigram")

# Characters that cannot be seen and mean nothing: soft hyphens, spaces without width, marks and
# embeddings of direction, variation selectors but those of pictures, and the like.
_MEANINGLESS = (
    "\u00ad\u034f\u061c\u17b4\u17b5\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0d\ufeff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e001f\U000e0080-\U000e0fff"
)
# The blocks of scripts whose letters join or stack, such as Arabic, Devanagari and Mongolian.
_JOINING = (
    "\u0600-\u0dff\u0f00-\u109f\u1700-\u18af\u1900-\u1cff\ua800-\uaadf\uabc0-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefe\U00010a00-\U00011fff\U0001e900-\U0001e95f"
)
# The selectors of how a picture or a key is shown, and the tags of flags such as that of Scotland.
_SELECTORS = "\ufe0e\ufe0f\U000e0020-\U000e007f"

# What is removed from texts, because it cannot be seen. The non-joiner is kept between letters that
# would join without it, the joiner and the selectors of Mongolian after a letter that they change,
# the joiner also before a picture, and other selectors after a picture or a key.
#
# The pattern means the same in JavaScript, which reads it from the tokenizer. Its first line makes
# it fast: few characters are looked at more closely.
INVISIBLE = (
    rf"(?=[{_MEANINGLESS}\u200c\u200d\u180b-\u180f{_SELECTORS}])(?:"
    rf"[{_MEANINGLESS}]"
    rf"|\u200c(?![{_JOINING}])|(?<![{_JOINING}\u200c])\u200c"
    rf"|(?<![{_JOINING}])[\u200d\u180b-\u180f](?!{PICTURES})"
    rf"|(?<![{PICTURES}0-9#*{_SELECTORS}])[{_SELECTORS}]+)"
)

_SURROGATE = re.compile("[\ud800-\udfff]")


def tokenize(tokenizer: Tokenizer, texts: Iterable[str], *, max_seq_len: int) -> TokenizedTexts:
    """Tokenize texts for an encoder that reads `max_seq_len` tokens.

    Raises:
        TypeError: `texts` is a single text or a table.
    """
    check_are_several(texts, "tokenize")
    has_rows = row_form(tokenizer) is not None
    indexed, words = index_tokens(
        token_reader(tokenizer),
        # A tokenizer that knows no columns may get the rows of another model.
        texts if has_rows else map(plain_text, texts),
        max_seq_len=max_seq_len,
        kind_of=kind_of_token if has_rows else None,
    )
    return replace(indexed, word_ids=token_ids(words, tokenizer.token_to_id))


# The maximum number of characters of a text that `count_tokens` reads.
MAX_COUNTED = 1_000_000


def count_tokens(tokenizer: Tokenizer, text: str) -> tuple[int, bool]:
    """Count the tokens of a text, with `[CLS]`, in its first `MAX_COUNTED` characters.

    The second value is whether the text has no more.
    """
    read = token_reader(tokenizer)
    chunk = read([text[:MAX_COUNTED]], MAX_COUNTED + 1)
    return int(chunk.lengths[0]), len(text) <= MAX_COUNTED


def token_ids(words: Sequence[str], id_of: Callable[[str], int | None]) -> NDArray[np.int32]:
    """Look up the ids of words; one for which `id_of` returns None is `[UNK]`.

    An unknown category of a feature has a token of its own.
    """
    ids = []
    for word in words:
        token_id = id_of(word)
        if token_id is None and kind_of_token(word) == FEATURE:
            token_id = id_of(token_of_other(word))
        ids.append(UNK_ID if token_id is None else token_id)
    return np.array(ids, dtype=np.int32)


def token_reader(tokenizer: Tokenizer) -> TokenReader:
    """Make a function that splits texts into tokens.

    Words are returned as they are written even if they are unknown; sub-words are those of the
    vocabulary.
    """
    is_word_level = isinstance(tokenizer.model, models.WordLevel)
    read = _word_reader(tokenizer) if is_word_level else _subword_reader(tokenizer)
    return reader_of_rows(read, row_form(tokenizer))


def _word_reader(tokenizer: Tokenizer) -> TokenReader:
    is_lowercase = lowercases(tokenizer)

    def split(text: str) -> list[str]:
        # A regular expression splits ASCII faster than the tokenizer.
        if not text.isascii():
            return split_by_tokenizer(tokenizer, replace_surrogates(text))
        if is_lowercase:
            text = text.lower()
        return ASCII_WORD.findall(text)

    def read(texts: Sequence[str], max_tokens: int) -> TokenChunk:
        token_lists = []
        for text in texts:
            tokens = [SPECIAL_TOKENS[CLS_ID], *split(text)]
            token_lists.append(tokens[:max_tokens])
        return _coded(token_lists)

    return read


def _subword_reader(tokenizer: Tokenizer) -> TokenReader:
    vocabulary = tokenizer.get_vocab()
    tokens_by_id = sorted(vocabulary, key=vocabulary.__getitem__)

    def read(texts: Sequence[str], max_tokens: int) -> TokenChunk:
        encodings = tokenizer.encode_batch_fast([replace_surrogates(text) for text in texts])
        token_lists = []
        for encoding in encodings:
            ids = encoding.ids[:max_tokens]
            token_lists.append([tokens_by_id[token_id] for token_id in ids])
        return _coded(token_lists)

    return read


def _coded(token_lists: Sequence[list[str]]) -> TokenChunk:
    tokens = list(chain.from_iterable(token_lists))

    # A token that is looked up for the first time gets the next index. `map` looks tokens up twice
    # as fast as a loop.
    index: defaultdict[str, int] = defaultdict(count().__next__)
    indices = np.fromiter(map(index.__getitem__, tokens), dtype=np.int32, count=len(tokens))

    lengths = np.array([len(tokens) for tokens in token_lists], dtype=np.int64)
    return TokenChunk(list(index), indices, lengths)


def split_by_tokenizer(tokenizer: Tokenizer, text: str) -> list[str]:
    """Split a text without surrogates into words."""
    normalized = tokenizer.normalizer.normalize_str(text)
    words_and_offsets = tokenizer.pre_tokenizer.pre_tokenize_str(normalized)
    return [word for word, _ in words_and_offsets]


def lowercases(tokenizer: Tokenizer) -> bool:
    """Whether letters become lower case."""
    return bool(tokenizer.normalizer.normalize_str("A") == "a")


def replace_surrogates(text: str) -> str:
    """Replace surrogates, which no tokenizer can read, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def unknown_words(tokenizer: Tokenizer, text: str, *, max_seq_len: int) -> list[str]:
    """The unknown words and values of features that an encoder reads."""
    read = text[: CHARACTERS_PER_TOKEN * max_seq_len]
    tokens = token_reader(tokenizer)([read], max_seq_len)
    words = [tokens.distinct[index] for index in tokens.indices]
    unknown = [word for word in words if tokenizer.token_to_id(word) is None]
    return [feature_name(word) if kind_of_token(word) == FEATURE else word for word in unknown]


class Span(NamedTuple):
    """The characters of a token, `text[start:end]`, and the index of its word; None without one."""

    start: int
    end: int
    word: int | None


def token_spans(tokenizer: Tokenizer, text: str, *, max_seq_len: int) -> list[Span]:
    """The spans of the tokens that an encoder reads, without `[CLS]`.

    A span covers whole characters, with their accents. Tokens of a single character, such as a
    ligature, share a span. Those of a row are places in `readable(text)`, and empty for what is not
    shown there.
    """
    form = row_form(tokenizer)
    if form is None:
        return _spans_of_words(tokenizer, plain_text(text), max_seq_len=max_seq_len)

    parts = row_parts(text)
    shown = readable_row(text)
    spans = []
    for feature in form.features:
        start, end = shown.places.get(feature, (0, 0))
        num_tokens = len(form.tokens_of(feature, parts.features.get(feature, "")))
        spans += [Span(start, end, None)] * num_tokens
    marks = form.marks([name for name, _ in parts.fields])
    for mark, (_, words), start in zip(marks, parts.fields, shown.starts, strict=True):
        if mark:
            spans.append(Span(start, start, None))
        for span in _spans_of_words(tokenizer, words, max_seq_len=max_seq_len):
            spans.append(Span(start + span.start, start + span.end, span.word))
    return spans[: max_seq_len - 1]


def _spans_of_words(tokenizer: Tokenizer, text: str, *, max_seq_len: int) -> list[Span]:
    read = text[: CHARACTERS_PER_TOKEN * max_seq_len]
    encoding = tokenizer.encode(replace_surrogates(read))
    tokens = zip(encoding.offsets, encoding.word_ids, strict=True)

    starts = _starts_of_characters(read)
    spans = []
    for (start, end), word in list(tokens)[1:max_seq_len]:
        first = bisect_right(starts, start) - 1
        after_last = bisect_left(starts, end)
        spans.append(Span(starts[first], starts[after_last], word))
    return spans


def _starts_of_characters(text: str) -> list[int]:
    """Where each character begins that is not a part of the one before, and the end."""
    starts = []
    for index, character in enumerate(text):
        if index == 0 or not continues_character(character):
            starts.append(index)
    return [*starts, len(text)]


def removes_invisible() -> normalizers.Normalizer:
    """The first step of a normalizer: it removes invisible characters."""
    return normalizers.Replace(Regex(INVISIBLE), "")


# The further steps of a normalizer that `tokenizer_training` may make.
NORMALIZERS = {"NFD", "StripAccents", "NFC", "NFKC", "Lowercase"}


def parse_tokenizer(content: str) -> Tokenizer:
    """Parse the JSON of a tokenizer, which may come from an untrusted source.

    Raises:
        ValueError: it is not the JSON of a tokenizer that `tokenizer_training` could make.
    """
    with _panics_as_value_errors():
        tokenizer = Tokenizer.from_str(content)

    first_tokens = [tokenizer.id_to_token(number) for number in range(len(SPECIAL_TOKENS))]
    if first_tokens != SPECIAL_TOKENS:
        raise ValueError("its first tokens are not " + ", ".join(SPECIAL_TOKENS))

    ids = sorted(tokenizer.get_vocab().values())
    if ids != list(range(tokenizer.get_vocab_size())):
        raise ValueError("its token ids are not 0, 1, 2, ...")

    # Write it only now: the library writes a line for each id that no token has.
    with _panics_as_value_errors():
        parts = json.loads(tokenizer.to_str())

    # Refuse unknown normalizers and pre-tokenizers: a regular expression of an untrusted file could
    # run for ever.
    if not (_is_own_normalizer(parts["normalizer"]) and _is_own_splitter(parts["pre_tokenizer"])):
        raise ValueError("it prepares texts in a way that no tokenizer of encoder-cls does")

    # Check the tokens of features and fields.
    row_form(tokenizer)
    return with_cls_template(tokenizer)


@contextmanager
def _panics_as_value_errors() -> Iterator[None]:
    """Turn errors of the library into a `ValueError`, also a panic, which is no `Exception`."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"not a tokenizer: {error}") from None


def _is_own_normalizer(normalizer: dict[str, Any] | None) -> bool:
    if normalizer is None or "normalizers" not in normalizer:
        return False
    removal = json.loads(removes_invisible().__getstate__())
    return all(step["type"] in NORMALIZERS or step == removal for step in normalizer["normalizers"])


def _is_own_splitter(splitter: Any) -> bool:
    known_splitters = [json.loads(pre_tokenizer(kind).__getstate__()) for kind in TYPES]
    return splitter in known_splitters


def pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer, which splits texts into words, of one of the `TYPES`."""
    if kind in {"bpe", "unigram"}:
        # Split into runs of letters and digits, and runs of punctuation. In scripts without spaces,
        # these models learn by themselves which characters form a word.
        return pre_tokenizers.Whitespace()
    return pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)


def with_cls_template(tokenizer: Tokenizer) -> Tokenizer:
    """Let a tokenizer, in place, put `[CLS]` first, and neither pad nor truncate."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", CLS_ID)]
    )
    tokenizer.no_padding()
    tokenizer.no_truncation()

    # Tokenize the names of special tokens like all other characters. Otherwise "[PAD]" in a text
    # would get the id of padding.
    tokenizer.encode_special_tokens = True
    return tokenizer
