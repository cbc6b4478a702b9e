"""Texts in, tokens out: trains a tokenizer on the training texts and keeps token ids in flat arrays.

Every sequence begins with `[CLS]`, so that none is empty. The special tokens have fixed ids; typed by a
user they are ordinary characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from encoder_cls.config import TokenizerConfig
from encoder_cls.errors import ConfigError
from encoder_cls.ngrams import Spellings, spell

PAD_ID, UNK_ID, CLS_ID, MASK_ID = range(4)
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[MASK]"]

# Scripts written without spaces between words: each character is a token of its own.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"

# Characters read for each token of the limit. Tokenizing time grows with the text, so what could not fit
# anyway is cut off first: a 10 MB text costs no more than a page.
CHARACTERS_PER_TOKEN = 64

NORMALIZERS = {"NFD", "StripAccents", "NFC", "NFKC", "Lowercase"}

CHUNK = 4096  # texts tokenized at once


@dataclass(frozen=True, kw_only=True)
class TokenizedTexts:
    """The tokens of many texts, one after the other.

    Attributes:
        input_ids: all token ids; text `i` has `input_ids[offsets[i]:offsets[i + 1]]`.
        words: of each token its row in `spellings`; unknown words, all `[UNK]`, have rows of their own.
        spellings: how each distinct word of these texts is spelt; special tokens have no letters.
        offsets: `len(texts) + 1` places in `input_ids` and `words`.
        truncated: whether text `i` was cut at the maximum length.
        unknown: how many tokens of text `i` are `[UNK]`.
    """

    input_ids: NDArray[np.int32]
    words: NDArray[np.int32]
    spellings: Spellings
    offsets: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    unknown: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.truncated)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text, `[CLS]` counted."""
        return np.diff(self.offsets)

    def first(self, count: int) -> TokenizedTexts:
        """The first texts of these; the list of words stays the same."""
        end = self.offsets[count]
        return replace(
            self,
            input_ids=self.input_ids[:end],
            words=self.words[:end],
            offsets=self.offsets[: count + 1],
            truncated=self.truncated[:count],
            unknown=self.unknown[:count],
        )

    @property
    def truncated_fraction(self) -> float:
        """The part of the texts that was cut."""
        return float(self.truncated.mean()) if len(self) else 0.0

    @property
    def unknown_fraction(self) -> float:
        """The part of the tokens, `[CLS]` not counted, that is `[UNK]`."""
        return float(self.unknown.sum() / max(1, len(self.input_ids) - len(self)))


def train_tokenizer(texts: Sequence[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer; the same texts and config give the same bytes.

    Raises:
        ConfigError: max_vocab_size is less than the characters that a sub-word model begins with.
    """
    tokenizer = Tokenizer(_model(config))
    tokenizer.normalizer = _normalizer(config)
    tokenizer.pre_tokenizer = _pre_tokenizer(config)
    first_tokens = SPECIAL_TOKENS
    if config.type == "word_piece":
        first_tokens = [*SPECIAL_TOKENS, *_continuations(tokenizer, texts)]
    try:
        tokenizer.train_from_iterator(_chunks(texts), trainer=_trainer(config, first_tokens))
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


def _continuations(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """The characters inside words as `word_piece` writes them, sorted.

    Left to itself its trainer numbers them in the order of a hash table, another one in each run, and pairs
    that are equally frequent are merged in the order of these numbers.
    """
    found: set[str] = set()
    for text in texts:
        for word in _words(tokenizer, text):
            found.update(word[1:])
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


def tokenize(tokenizer: Tokenizer, texts: Sequence[str], *, max_seq_len: int) -> TokenizedTexts:
    """Turn texts into token ids, `[CLS]` first, each cut at `max_seq_len` tokens.

    Half surrogate pairs, which no tokenizer can read, count as U+FFFD.
    """
    most_characters = CHARACTERS_PER_TOKEN * max_seq_len
    lexicon = _Lexicon(tokenizer)
    ids: list[NDArray[np.int32]] = []
    numbers: list[NDArray[np.int32]] = []
    truncated: list[bool] = []
    for chunk in _chunks(texts):
        readable = [_readable(text[:most_characters]) for text in chunk]
        for text, read, encoding in zip(chunk, readable, tokenizer.encode_batch_fast(readable), strict=True):
            tokens = np.array(encoding.ids, dtype=np.int32)
            truncated.append(len(tokens) > max_seq_len or len(text) > most_characters)
            ids.append(tokens[:max_seq_len])
            numbers.append(lexicon.numbers(read, tokens)[:max_seq_len])
    input_ids = _flat(ids)
    lengths = np.array([len(tokens) for tokens in ids], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    unknown_before = np.concatenate([[0], np.cumsum(input_ids == UNK_ID, dtype=np.int32)])
    distinct, rows = np.unique(_flat(numbers), return_inverse=True)
    return TokenizedTexts(
        input_ids=input_ids,
        words=rows.astype(np.int32),
        spellings=spell([lexicon.word(number) for number in distinct.tolist()]),
        offsets=offsets,
        truncated=np.array(truncated, dtype=np.bool_),
        unknown=np.diff(unknown_before[offsets]).astype(np.int32),
    )


class Span(NamedTuple):
    """Where a token stands in its text, in characters, and which word of the text it is (a part) of."""

    start: int
    end: int
    word: int | None


def token_spans(tokenizer: Tokenizer, text: str, *, max_seq_len: int) -> list[Span]:
    """Where the tokens of a text stand that `tokenize` keeps, `[CLS]` left out."""
    encoding = tokenizer.encode(_readable(text[: CHARACTERS_PER_TOKEN * max_seq_len]))
    found = zip(encoding.offsets, encoding.word_ids, strict=True)
    return [Span(start, end, word) for (start, end), word in found][1:max_seq_len]


class _Lexicon:
    """A number for each word: its token id, or for words without one of their own those that follow the last."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = tokenizer.get_vocab_size()
        self._unknown: dict[str, int] = {}  # in the order of their numbers

    def numbers(self, text: str, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """The numbers of a text's tokens."""
        if UNK_ID not in ids:
            return ids
        words = _words(self._tokenizer, text)
        if len(words) != len(ids) - 1:  # not a token for each word: what is unknown are characters
            return ids
        numbers = ids.copy()
        for place in np.flatnonzero(ids == UNK_ID):
            numbers[place] = self._unknown.setdefault(words[place - 1], self._vocab_size + len(self._unknown))
        return numbers

    def word(self, number: int) -> str:
        """The word of a number; special tokens have no letters."""
        if number < len(SPECIAL_TOKENS):
            return ""
        if number < self._vocab_size:
            return self._tokenizer.id_to_token(number) or ""
        return self._unknown_words[number - self._vocab_size]

    @cached_property
    def _unknown_words(self) -> list[str]:
        return list(self._unknown)


def _flat(arrays: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text as the tokenizer sees them before it looks them up."""
    normalized = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    if tokenizer.pre_tokenizer is None:
        return [normalized]
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]


def _chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), CHUNK):
        yield texts[start : start + CHUNK]


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
        "word_level": trainers.WordLevelTrainer,
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
