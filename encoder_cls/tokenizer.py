"""Texts in, tokens out: trains a tokenizer on the training texts and keeps token ids in flat arrays.

Every sequence begins with `[CLS]`, so that none is empty. The special tokens have fixed ids; typed by a
user they are ordinary characters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from encoder_cls.columns import GrowingArray
from encoder_cls.config import TokenizerConfig
from encoder_cls.errors import ConfigError
from encoder_cls.ngrams import LONGEST_WORD, Spellings, spell

PAD_ID, UNK_ID, CLS_ID, MASK_ID = range(4)
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[MASK]"]

# Scripts written without spaces between words: each character is a token of its own.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"

# Characters read for each token of the limit. Tokenizing time grows with the text, so what could not fit
# anyway is cut off first: a 10 MB text costs no more than a page.
CHARACTERS_PER_TOKEN = 64
# Tokens kept for each token of the limit, which is an encoder's: a linear classifier reads further.
KEPT_PER_TOKEN = 8

NORMALIZERS = {"NFD", "StripAccents", "NFC", "NFKC", "Lowercase"}

# With spaces around it, words of ASCII are what is between spaces: all that normalizer and pre-tokenizer do to ASCII,
# but for its case.
PUNCTUATION = r"([^\w\s]+)"

CHUNK = 1024  # texts tokenized at once
TOKENS_AT_ONCE = 1 << 22  # when they are counted, in 32 MB
MOST_PIECES = 1 << 16  # between spaces, that are not ASCII, in some 30 MB

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class TokenizedTexts:
    """The tokens of many texts, one after the other; each is a word, of which there is a list.

    Attributes:
        words: the row of each token in the list of words; text `i` has `words[offsets[i]:offsets[i + 1]]`.
        word_ids: of each word its token id; unknown words, all `[UNK]`, are words of their own.
        spellings: how each word is spelt; special tokens have no letters.
        offsets: `len(texts) + 1` places in `words`.
        max_seq_len: tokens of a text that an encoder reads, of the `KEPT_PER_TOKEN` times as many that are kept.
        truncated: whether text `i` has more than those.
        unknown: how many of those of text `i` are `[UNK]`.
    """

    words: NDArray[np.int32]
    word_ids: NDArray[np.int32]
    spellings: Spellings
    offsets: NDArray[np.int64]
    max_seq_len: int
    truncated: NDArray[np.bool_]
    unknown: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.truncated)

    def input_ids(self, places: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int32]:
        """The ids of the tokens at these places."""
        return self.word_ids[self.words[places]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text that an encoder reads, `[CLS]` counted."""
        return self.lengths_within(self.max_seq_len)

    def lengths_within(self, reach: int) -> NDArray[np.int64]:
        """Tokens of each text, `[CLS]` counted, those beyond the first so many left out."""
        return np.minimum(np.diff(self.offsets), reach)

    def first(self, count: int) -> TokenizedTexts:
        """The first texts of these; the list of words stays the same."""
        end = self.offsets[count]
        return replace(
            self,
            words=self.words[:end],
            offsets=self.offsets[: count + 1],
            truncated=self.truncated[:count],
            unknown=self.unknown[:count],
        )

    @property
    def truncated_fraction(self) -> float:
        """The part of the texts that are longer than an encoder reads."""
        return float(self.truncated.mean()) if len(self) else 0.0

    @property
    def unknown_fraction(self) -> float:
        """The part of the tokens that an encoder reads, `[CLS]` not counted, that is `[UNK]`."""
        return float(self.unknown.sum() / max(1, self.lengths.sum() - len(self)))


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer; the same texts and config give the same bytes.

    Half surrogate pairs, which no tokenizer can read, count as U+FFFD.

    Raises:
        ConfigError: max_vocab_size is less than the characters that a sub-word model begins with.
    """
    if config.type == "word_level":
        return train_and_tokenize(texts, config, max_seq_len=sys.maxsize // CHARACTERS_PER_TOKEN)[0]
    tokenizer = _untrained(config)
    first_tokens = SPECIAL_TOKENS
    if config.type == "word_piece":
        first_tokens = [*SPECIAL_TOKENS, *_continuations(tokenizer, texts)]
    try:
        tokenizer.train_from_iterator(_chunks(map(_readable, texts)), trainer=_trainer(config, first_tokens))
    except Exception as error:
        raise ConfigError(f"tokenizer.max_vocab_size: {config.max_vocab_size}: {error}") from None
    if tokenizer.get_vocab_size() > config.max_vocab_size:
        raise ConfigError(
            f"tokenizer.max_vocab_size: {config.max_vocab_size} is less than the {tokenizer.get_vocab_size()} single "
            f"characters and special tokens that {config.type} needs for these texts"
        )
    if config.type in {"word_piece", "unigram"}:
        tokenizer = _reproducible(tokenizer)
    return _guarded(tokenizer)


def train_and_tokenize(
    texts: Iterable[str], config: TokenizerConfig, *, max_seq_len: int
) -> tuple[Tokenizer, TokenizedTexts]:
    """Train a tokenizer, and `tokenize` the same texts; where tokens are words, these are found only once.

    Words are then counted as far as texts are kept, and are those that `trainers.WordLevelTrainer` finds.

    Raises:
        ConfigError: as `train_tokenizer`.
    """
    if config.type != "word_level":
        tokenizer = train_tokenizer(texts, config)
        return tokenizer, tokenize(tokenizer, texts, max_seq_len=max_seq_len)
    tokenizer = _untrained(config)
    found = _find(_Splitter(tokenizer).split, texts, max_seq_len=max_seq_len)
    vocabulary = found.most_frequent(config)
    tokenizer.model = models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID])
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return _guarded(tokenizer), found.looked_up(vocabulary.get)


def _untrained(config: TokenizerConfig) -> Tokenizer:
    tokenizer = Tokenizer(_model(config))
    tokenizer.normalizer = _normalizer(config)
    tokenizer.pre_tokenizer = _pre_tokenizer(config)
    return tokenizer


def _continuations(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """The characters inside words as `word_piece` writes them, sorted.

    Left to itself its trainer numbers them in the order of a hash table, another one in each run, and pairs
    that are equally frequent are merged in the order of these numbers.
    """
    splitter, found = _Splitter(tokenizer), set[str]()
    for chunk in _chunks(map(_readable, texts)):
        words = splitter.split(chunk).flatten().unique().to_pylist()
        found.update(*(word[1:] for word in words if word not in SPECIAL_TOKENS))
    return [f"##{character}" for character in sorted(found)]


def _reproducible(trained: Tokenizer) -> Tokenizer:
    """The same tokenizer without what is left in it of the order of a hash table."""
    vocabulary = json.loads(trained.to_str())["model"]["vocab"]
    if isinstance(vocabulary, dict):  # word_piece: begin anew, so that `first_tokens` are no special tokens
        tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID]))
    else:  # unigram adds up scores in the order of a hash table: the last bits differ, and the order of equals
        special, learned = vocabulary[: len(SPECIAL_TOKENS)], vocabulary[len(SPECIAL_TOKENS) :]
        rounded = sorted(((piece, round(score or 0, 6)) for piece, score in learned), key=lambda it: (-it[1], it[0]))
        tokenizer = Tokenizer(models.Unigram(vocab=[*map(tuple, special), *rounded], unk_id=UNK_ID))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return tokenizer


def parse_tokenizer(content: str) -> Tokenizer:
    """Read a tokenizer from the text of its JSON file.

    Raises:
        ValueError: the text is no tokenizer, not one that `train_tokenizer` makes, or its special tokens are not
            where they should be.
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
    return _guarded(tokenizer)


def _known_pre_tokenizers() -> list[Any]:
    tokenizers = []
    for kind in get_args(TokenizerConfig.model_fields["type"].annotation):
        tokenizer = Tokenizer(models.WordLevel())
        tokenizer.pre_tokenizer = _pre_tokenizer(TokenizerConfig(type=kind))
        tokenizers.append(json.loads(tokenizer.to_str())["pre_tokenizer"])
    return tokenizers


def tokenize(tokenizer: Tokenizer, texts: Iterable[str], *, max_seq_len: int) -> TokenizedTexts:
    """Turn texts into token ids, `[CLS]` first, for an encoder that reads `max_seq_len` tokens of each.

    Half surrogate pairs, which no tokenizer can read, count as U+FFFD.
    """
    return _find(_reader(tokenizer), texts, max_seq_len=max_seq_len).looked_up(tokenizer.token_to_id)


class Span(NamedTuple):
    """Where a token stands in its text, in characters, and which word of the text it is (a part) of."""

    start: int
    end: int
    word: int | None


def token_spans(tokenizer: Tokenizer, text: str, *, max_seq_len: int) -> list[Span]:
    """Where the tokens of a text stand that an encoder reads, `[CLS]` left out."""
    encoding = tokenizer.encode(_readable(text[: CHARACTERS_PER_TOKEN * max_seq_len]))
    found = zip(encoding.offsets, encoding.word_ids, strict=True)
    return [Span(start, end, word) for (start, end), word in found][1:max_seq_len]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Texts whose words are found and not looked up yet; attributes as those of `TokenizedTexts`.

    Attributes:
        listed: the list of words.
    """

    words: NDArray[np.int32]
    listed: list[str]
    spellings: Spellings
    offsets: NDArray[np.int64]
    max_seq_len: int
    truncated: NDArray[np.bool_]

    def most_frequent(self, config: TokenizerConfig) -> dict[str, int]:
        """The words to be known, with their ids."""
        counts = np.zeros(len(self.listed), dtype=np.int64)
        for start in range(0, len(self.words), TOKENS_AT_ONCE):
            counts += np.bincount(self.words[start : start + TOKENS_AT_ONCE], minlength=len(counts))
        counts[:1] = 0  # [CLS]
        by_name = sorted(np.flatnonzero(counts >= config.min_frequency).tolist(), key=self.listed.__getitem__)
        by_count = np.argsort(-counts[by_name], kind="stable").tolist()
        kept = [*SPECIAL_TOKENS, *(self.listed[by_name[place]] for place in by_count)][: config.max_vocab_size]
        return {word: number for number, word in enumerate(kept)}

    def looked_up(self, id_of: Callable[[str], int | None]) -> TokenizedTexts:
        """The texts with the ids of their words; what has none is unknown."""
        ids = [id_of(word) for word in self.listed]
        word_ids = np.array([UNK_ID if number is None else number for number in ids], dtype=np.int32)
        is_unknown = word_ids == UNK_ID
        unknown = GrowingArray(np.int32)
        for first in range(0, len(self.truncated), CHUNK):
            offsets = self.offsets[first : first + CHUNK + 1]
            starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
            are_unknown = is_unknown[self.words[offsets[0] : offsets[-1]]]
            are_unknown &= np.arange(len(are_unknown)) - np.repeat(starts, lengths) < self.max_seq_len
            unknown.append(np.add.reduceat(are_unknown, starts, dtype=np.int32))
        return TokenizedTexts(
            words=self.words,
            word_ids=word_ids,
            spellings=self.spellings,
            offsets=self.offsets,
            max_seq_len=self.max_seq_len,
            truncated=self.truncated,
            unknown=unknown.array(),
        )


def _find(read: Callable[[Sequence[str]], pa.Array], texts: Iterable[str], *, max_seq_len: int) -> _Found:
    """Find the words of texts, of each as far as it is kept; `read` makes a list of tokens of each of some texts."""
    most_characters, most_kept = CHARACTERS_PER_TOKEN * max_seq_len, KEPT_PER_TOKEN * max_seq_len

    def found_in(chunk: Sequence[str]) -> tuple[pa.DictionaryArray, NDArray[Any], NDArray[np.bool_]]:
        """All words one after the other, how many each text has, and whether it is truncated."""
        whole = read([_readable(text[:most_characters]) for text in chunk])
        lengths: NDArray[Any] = np.from_dlpack(pc.list_value_length(whole))
        truncated = [len(text) > most_characters for text in chunk] | (lengths > max_seq_len)
        if (lengths > most_kept).any():
            whole, lengths = pc.list_slice(whole, 0, most_kept), np.minimum(lengths, most_kept)
        return whole.flatten().dictionary_encode(), lengths, truncated

    lexicon = _Lexicon()
    words, offsets, truncated = GrowingArray(np.int32), GrowingArray(np.int64), GrowingArray(np.bool_)
    offsets.append([0])
    end = 0
    for coded, lengths, are_truncated in _ahead(found_in, _chunks(texts)):
        words.append(lexicon.rows(coded))
        offsets.append(end + np.cumsum(lengths))
        truncated.append(are_truncated)
        end += len(coded)
    return _Found(
        words=words.array(),
        listed=lexicon.words,
        spellings=lexicon.spellings(),
        offsets=offsets.array(),
        max_seq_len=max_seq_len,
        truncated=truncated.array(),
    )


class _Lexicon:
    """The list of words, which grows as texts are read."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._ngrams, self._offsets = GrowingArray(np.uint32), GrowingArray(np.int64)
        self._offsets.append([0])
        self._num_ngrams = 0

    @property
    def words(self) -> list[str]:
        """All words, in the order of their rows."""
        return list(self._rows)

    def spellings(self) -> Spellings:
        """How each is spelt; after this, none can come."""
        return Spellings(ngrams=self._ngrams.array(), offsets=self._offsets.array())

    def rows(self, tokens: pa.DictionaryArray) -> NDArray[np.int32]:
        """The row of each token; what is new gets one."""
        distinct, known = tokens.dictionary.to_pylist(), len(self._rows)
        rows = [self._rows.setdefault(token, len(self._rows)) for token in distinct]
        self._spell([token for token, row in zip(distinct, rows, strict=True) if row >= known])
        of_tokens: NDArray[np.int32] = np.array(rows, dtype=np.int32)[np.from_dlpack(tokens.indices)]
        return of_tokens

    def _spell(self, tokens: Sequence[str]) -> None:
        """Add how the tokens of the next rows are spelt."""
        spellings = spell(["" if token in SPECIAL_TOKENS else token for token in tokens])
        self._ngrams.append(spellings.ngrams)
        self._offsets.append(self._num_ngrams + spellings.offsets[1:])
        self._num_ngrams += len(spellings.ngrams)


class _Splitter:
    """Finds the words of texts as the tokenizer does, in a tenth of the time where they are ASCII.

    Python sees no word of an ASCII text: Arrow's kernels work on all texts at once, and on each distinct word once.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._lowercase = tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"
        self._tokenizer = tokenizer
        self._remembered: dict[str, str] = {}

    def split(self, texts: Sequence[str]) -> pa.Array:
        """The tokens of each text, `[CLS]` and then its words, normalized: a list of strings a text."""
        spaced = self._spaced(_to_arrow(texts), others=self._spaced_by_pieces)
        with_cls = pc.binary_join_element_wise(*_to_arrow([SPECIAL_TOKENS[CLS_ID]]), spaced, *_to_arrow([" "]))
        return pc.ascii_split_whitespace(pc.ascii_rtrim_whitespace(with_cls))

    def _spaced(self, texts: pa.Array, *, others: Callable[[pa.Array], pa.Array]) -> pa.Array:
        """The words of each text, with spaces between them; `others` does that for texts that are not ASCII."""
        is_ascii = pc.string_is_ascii(texts)
        ascii_texts, other_texts = texts.filter(is_ascii), texts.filter(pc.invert(is_ascii))
        if self._lowercase:
            ascii_texts = pc.ascii_lower(ascii_texts)
        ascii_texts = pc.replace_substring_regex(ascii_texts, pattern=PUNCTUATION, replacement=r" \1 ")
        texts = pc.replace_with_mask(texts, is_ascii, ascii_texts)
        return pc.replace_with_mask(texts, pc.invert(is_ascii), others(other_texts))

    def _spaced_by_pieces(self, texts: pa.Array) -> pa.Array:
        """The same of any text: nothing in a piece between spaces depends on what is beyond them."""
        pieces = pc.ascii_split_whitespace(texts)
        coded = pieces.flatten().dictionary_encode()
        distinct = self._spaced(coded.dictionary, others=self._spaced_one_by_one)
        spaced = type(pieces).from_arrays(pieces.offsets, distinct.take(coded.indices))
        return pc.binary_join(spaced, *_to_arrow([" "]))

    def _spaced_one_by_one(self, pieces: pa.Array) -> pa.Array:
        return _to_arrow([self._spaced_piece(piece) for piece in pieces.to_pylist()])

    def _spaced_piece(self, piece: str) -> str:
        """The words of a piece, with spaces between them; remembered, where it is no longer than a word."""
        if len(piece) > LONGEST_WORD:
            return " ".join(_words(self._tokenizer, piece))
        if piece not in self._remembered:
            if len(self._remembered) >= MOST_PIECES:
                self._remembered.clear()
            self._remembered[piece] = " ".join(_words(self._tokenizer, piece))
        return self._remembered[piece]


def _reader(tokenizer: Tokenizer) -> Callable[[Sequence[str]], pa.Array]:
    """What makes a list of tokens of each text, `[CLS]` first: words, the unknown as written, or pieces of words."""
    if isinstance(tokenizer.model, models.WordLevel):
        return _Splitter(tokenizer).split
    vocabulary = tokenizer.get_vocab()
    tokens = _to_arrow(sorted(vocabulary, key=vocabulary.__getitem__))

    def read(texts: Sequence[str]) -> pa.Array:
        ids = [np.array(encoding.ids, dtype=np.int64) for encoding in tokenizer.encode_batch_fast(texts)]
        offsets = np.cumsum([0, *map(len, ids)])
        return pa.LargeListArray.from_arrays(_numbers(offsets), tokens.take(_numbers(np.concatenate(ids))))

    return read


# `pa.array` would first load pandas, in more time than many a data set takes.


def _to_arrow(texts: Sequence[str]) -> pa.Array:
    """Strings as an array of Arrow's."""
    contents = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, contents)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(contents)))


def _numbers(numbers: NDArray[np.int64]) -> pa.Array:
    """Numbers as an array of Arrow's."""
    return pa.Int64Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text as the tokenizer sees them before it looks them up."""
    normalized = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    if tokenizer.pre_tokenizer is None:
        return [normalized]
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]


def _ahead(function: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """What a function makes of each item, made in another thread while the one before is used."""
    with ThreadPoolExecutor(1) as thread:
        coming: Future[Made] | None = None
        for item in items:
            before, coming = coming, thread.submit(function, item)
            if before:
                yield before.result()
        if coming:
            yield coming.result()


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk


def _readable(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _guarded(tokenizer: Tokenizer) -> Tokenizer:
    # Whatever a file says, a text begins with [CLS], and only `tokenize` cuts.
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", CLS_ID)]
    )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # Without this a text that contains "[PAD]" would be given the padding id.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _normalizer(config: TokenizerConfig) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if config.strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    if config.normalization != "none":
        steps.append({"nfc": normalizers.NFC, "nfkc": normalizers.NFKC}[config.normalization]())
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps)


def _pre_tokenizer(config: TokenizerConfig) -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.Whitespace()  # runs of letters and digits, runs of punctuation
    if config.type in {"bpe", "unigram"}:
        return words  # these find the words of unspaced scripts themselves
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(UNSPACED), "isolated"), words])


def _model(config: TokenizerConfig) -> models.Model:
    if config.type == "unigram":
        return models.Unigram()
    kinds: dict[str, Any] = {"word_level": models.WordLevel, "word_piece": models.WordPiece, "bpe": models.BPE}
    model: models.Model = kinds[config.type](unk_token=SPECIAL_TOKENS[UNK_ID])
    return model


def _trainer(config: TokenizerConfig, first_tokens: Sequence[str]) -> trainers.Trainer:
    kinds: dict[str, Any] = {
        "word_piece": trainers.WordPieceTrainer,
        "bpe": trainers.BpeTrainer,
        "unigram": trainers.UnigramTrainer,
    }
    # The unigram model has no counts to set a limit on, and must be told which token is unknown.
    special = (
        {"unk_token": SPECIAL_TOKENS[UNK_ID]} if config.type == "unigram" else {"min_frequency": config.min_frequency}
    )
    trainer: trainers.Trainer = kinds[config.type](
        vocab_size=config.max_vocab_size, special_tokens=first_tokens, show_progress=False, **special
    )
    return trainer
