"""Texts in, tokens out: trains a tokenizer on the training texts and keeps token ids in flat arrays.

Every sequence begins with `[CLS]`, so that none is empty. The special tokens have fixed ids; typed by a
user they are ordinary characters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby, islice
from typing import Any, NamedTuple, get_args

import numpy as np
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

NORMALIZERS = {"NFD", "StripAccents", "NFC", "NFKC", "Lowercase"}

# What normalizer and pre-tokenizer make of ASCII, but for its case.
ASCII_WORD = re.compile(r"\w+|[^\w\s]+", re.ASCII)
ASCII_SPACE = re.compile(r"\s+", re.ASCII)

CHUNK = 1024  # texts tokenized at once
MOST_REMEMBERED = 1 << 19  # unknown words, in some 100 MB
MOST_PIECES = 1 << 16  # between spaces, that are not ASCII, in some 30 MB


@dataclass(frozen=True, kw_only=True)
class TokenizedTexts:
    """The tokens of many texts, one after the other; each is a word, of which there is a list.

    Attributes:
        words: the row of each token in the list of words; text `i` has `words[offsets[i]:offsets[i + 1]]`.
        word_ids: of each word its token id; unknown words, all `[UNK]`, are words of their own.
        spellings: how each word is spelt; special tokens have no letters.
        offsets: `len(texts) + 1` places in `words`.
        truncated: whether text `i` was cut at the maximum length.
        unknown: how many tokens of text `i` are `[UNK]`.
    """

    words: NDArray[np.int32]
    word_ids: NDArray[np.int32]
    spellings: Spellings
    offsets: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    unknown: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.truncated)

    def input_ids(self, places: NDArray[np.int64] | slice = slice(None)) -> NDArray[np.int32]:
        """The ids of the tokens at these places."""
        return self.word_ids[self.words[places]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text, `[CLS]` counted."""
        return np.diff(self.offsets)

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
        """The part of the texts that was cut."""
        return float(self.truncated.mean()) if len(self) else 0.0

    @property
    def unknown_fraction(self) -> float:
        """The part of the tokens, `[CLS]` not counted, that is `[UNK]`."""
        return float(self.unknown.sum() / max(1, len(self.words) - len(self)))


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer; the same texts and config give the same bytes.

    Raises:
        ConfigError: max_vocab_size is less than the characters that a sub-word model begins with.
    """
    tokenizer = Tokenizer(_model(config))
    tokenizer.normalizer = _normalizer(config)
    tokenizer.pre_tokenizer = _pre_tokenizer(config)
    if config.type == "word_level":
        tokenizer.model = models.WordLevel(_most_frequent(tokenizer, texts, config), unk_token=SPECIAL_TOKENS[UNK_ID])
        tokenizer.add_special_tokens(SPECIAL_TOKENS)
        return _guarded(tokenizer)
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


def _most_frequent(tokenizer: Tokenizer, texts: Iterable[str], config: TokenizerConfig) -> dict[str, int]:
    """The words to be known, with their ids: those that `trainers.WordLevelTrainer` finds, in less time."""
    splitter, counts = _Splitter(tokenizer), Counter[str]()
    for text in texts:
        counts.update(splitter.words(_readable(text)))
    frequent = [item for item in counts.items() if item[1] >= config.min_frequency]
    frequent.sort(key=lambda item: (-item[1], item[0]))
    kept = [*SPECIAL_TOKENS, *(word for word, _ in frequent)][: config.max_vocab_size]
    return {word: number for number, word in enumerate(kept)}


def _continuations(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """The characters inside words as `word_piece` writes them, sorted.

    Left to itself its trainer numbers them in the order of a hash table, another one in each run, and pairs
    that are equally frequent are merged in the order of these numbers.
    """
    splitter, found = _Splitter(tokenizer), set[str]()
    for text in texts:
        for word in splitter.words(text):
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


def tokenize(tokenizer: Tokenizer, texts: Iterable[str], *, max_seq_len: int) -> TokenizedTexts:
    """Turn texts into token ids, `[CLS]` first, each cut at `max_seq_len` tokens.

    Half surrogate pairs, which no tokenizer can read, count as U+FFFD.
    """
    most_characters = CHARACTERS_PER_TOKEN * max_seq_len
    lexicon, read = _Lexicon(tokenizer), _reader(tokenizer)
    words, offsets = GrowingArray(np.int32), GrowingArray(np.int64)
    truncated, unknown = GrowingArray(np.bool_), GrowingArray(np.int32)
    offsets.append([0])
    end = 0
    for chunk in _chunks(texts):
        whole = read([_readable(text[:most_characters]) for text in chunk])
        lengths = np.array([min(len(tokens), max_seq_len) for tokens in whole])
        starts = np.cumsum(lengths) - lengths
        flat = list(chain.from_iterable(tokens[:max_seq_len] for tokens in whole))
        rows = lexicon.rows(flat)
        words.append(rows)
        offsets.append(end + starts + lengths)
        end += len(flat)
        truncated.append(
            [len(text) > most_characters or len(it) > max_seq_len for text, it in zip(chunk, whole, strict=True)]
        )
        unknown.append(np.add.reduceat(lexicon.are_unknown(rows), starts, dtype=np.int32))
    return TokenizedTexts(
        words=words.array(),
        word_ids=lexicon.ids.array(),
        spellings=Spellings(ngrams=lexicon.ngrams.array(), offsets=lexicon.offsets.array()),
        offsets=offsets.array(),
        truncated=truncated.array(),
        unknown=unknown.array(),
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
    """The list of words: of each its id and its spelling.

    What is known is there once. Of unknown words there is no end: when too many are remembered, they are all
    forgotten, and those that come again get another row, which says the same.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.ids = GrowingArray(np.int32)
        self.ngrams, self.offsets = GrowingArray(np.uint32), GrowingArray(np.int64)
        self.offsets.append([0])
        self._tokenizer = tokenizer
        self._rows = _Rows()
        self._is_unknown = bytearray()  # of each row
        self._num_ngrams, self._num_remembered = 0, 0

    def rows(self, tokens: Sequence[str]) -> NDArray[np.int32]:
        """The row of each token; what is new gets one."""
        if self._num_remembered > MOST_REMEMBERED:
            for token in [token for token, row in self._rows.items() if self._is_unknown[row]]:
                del self._rows[token]
            self._num_remembered = 0
        rows = np.fromiter(map(self._rows.__getitem__, tokens), dtype=np.int32, count=len(tokens))
        self._describe(self._rows.pop_new())
        return rows

    def are_unknown(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether the word of each row is unknown."""
        return np.frombuffer(self._is_unknown, dtype=np.bool_)[rows]

    def _describe(self, tokens: Sequence[str]) -> None:
        """Add what is known of the tokens of the next rows."""
        ids = [self._tokenizer.token_to_id(token) for token in tokens]
        are_unknown = [number in {None, UNK_ID} for number in ids]
        spellings = spell(["" if token in SPECIAL_TOKENS else token for token in tokens])
        self.ids.append([UNK_ID if number is None else number for number in ids])
        self.ngrams.append(spellings.ngrams)
        self.offsets.append(self._num_ngrams + spellings.offsets[1:])
        self._is_unknown += bytes(are_unknown)
        self._num_ngrams += len(spellings.ngrams)
        self._num_remembered += sum(are_unknown)


class _Rows(dict[str, int]):
    """The row of each token; one that is not there gets the next row as soon as it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0
        self._new: list[str] = []

    def __missing__(self, token: str) -> int:
        row = self[token] = self._next
        self._next += 1
        self._new.append(token)
        return row

    def pop_new(self) -> list[str]:
        """The tokens that have got rows since this was asked last, in their order."""
        new, self._new = self._new, []
        return new


class _Splitter:
    """Finds the words of texts as the tokenizer does, in a fifth of the time where they are ASCII."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._lowercase = tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"
        self._tokenizer = tokenizer
        self._words_of: dict[str, list[str]] = {}

    def words(self, text: str) -> list[str]:
        """The words of a text, normalized."""
        if text.isascii():
            return self._ascii_words(text)
        words: list[str] = []
        # Nothing in a piece between spaces depends on what is beyond them.
        for is_ascii, pieces in groupby(ASCII_SPACE.split(text), str.isascii):
            if is_ascii:
                words += self._ascii_words(" ".join(pieces))
            else:
                words += chain.from_iterable(map(self._piece, pieces))
        return words

    def _ascii_words(self, text: str) -> list[str]:
        return ASCII_WORD.findall(text.lower() if self._lowercase else text)

    def _piece(self, piece: str) -> list[str]:
        """The words of a piece that is not ASCII; remembered, where it is no longer than a word."""
        if len(piece) > LONGEST_WORD:
            return _words(self._tokenizer, piece)
        if piece not in self._words_of:
            if len(self._words_of) >= MOST_PIECES:
                self._words_of.clear()
            self._words_of[piece] = _words(self._tokenizer, piece)
        return self._words_of[piece]


def _reader(tokenizer: Tokenizer) -> Callable[[Sequence[str]], list[list[str]]]:
    """What makes tokens of texts, `[CLS]` first: words, those unknown as they are written, or pieces of words."""
    if isinstance(tokenizer.model, models.WordLevel):
        splitter, cls = _Splitter(tokenizer), SPECIAL_TOKENS[CLS_ID]
        return lambda texts: [[cls, *splitter.words(text)] for text in texts]
    written = {number: token for token, number in tokenizer.get_vocab().items()}
    return lambda texts: [[written[number] for number in it.ids] for it in tokenizer.encode_batch_fast(texts)]


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text as the tokenizer sees them before it looks them up."""
    normalized = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    if tokenizer.pre_tokenizer is None:
        return [normalized]
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]


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
