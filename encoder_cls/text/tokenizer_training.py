"""Train a tokenizer, and tokenize the texts of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, trainers

from encoder_cls.errors import ConfigError
from encoder_cls.system.disk_arrays import cached, in_chunks
from encoder_cls.system.files import sha256
from encoder_cls.system.reporter import SILENT, Reporter
from encoder_cls.system.stop import checking, run_interruptibly
from encoder_cls.text.tokenizer import (
    lowercases,
    parse_tokenizer,
    pre_tokenizer,
    replace_surrogates,
    split_by_tokenizer,
    token_ids,
    tokenize,
    with_cls_template,
)
from encoder_cls.text.tokens import (
    CHARACTERS_PER_TOKEN,
    CLS_ID,
    LONGEST_LEARNED,
    LONGEST_WORD,
    SPECIAL_TOKENS,
    UNK_ID,
    CharNgrams,
    TokenChunk,
    TokenizedTexts,
    index_tokens,
)

if TYPE_CHECKING:
    from encoder_cls.config.schema import Config, TokenizerConfig

_LONG_PIECE = re.compile(rf"(?<!\S)\S{{{LONGEST_LEARNED + 1}}}", re.ASCII)
# In ASCII texts, normalizer and pre-tokenizer only separate punctuation and convert to lower case.
PUNCTUATION = r"([^\w\s]+)"
MOST_PIECES = 1 << 16  # kept, in some 30 MB: the words of texts that are not ASCII


class TokenizedData(NamedTuple):
    """A tokenizer, the tokens of training and validation texts, and the number of words too long to learn from."""

    tokenizer: Tokenizer
    texts: TokenizedTexts
    validation_texts: TokenizedTexts
    long_words: int


def tokenized_data(
    texts: Iterable[str],
    validation_texts: Iterable[str],
    config: Config,
    *,
    fingerprints: Sequence[str],
    base: Tokenizer | None,
    check: Callable[[], None],
    reporter: Reporter = SILENT,
) -> TokenizedData:
    """Train a tokenizer, or extend that of the base run, and tokenize all texts, or read both from the cache.

    The key of the cache has the `fingerprints` of the texts. Training calls `check` now and then, which may raise an
    error; others are those of `train_subwords` and of the disk.
    """
    max_seq_len, cache = config.model.max_seq_len, config.data.cache
    key = {
        "tokenizer": config.tokenizer.model_dump(mode="json"),
        "max_seq_len": max_seq_len,
        "texts": fingerprints,
        "base": base and sha256(base.to_str().encode()),
    }

    def tokenized() -> tuple[str, TokenizedTexts, TokenizedTexts, int]:
        tokenizer, tokens, long_words = train_and_tokenize(
            texts, config.tokenizer, max_seq_len=max_seq_len, base=base
        )
        return (
            tokenizer.to_str(),
            tokens,
            tokenize(tokenizer, validation_texts, max_seq_len=max_seq_len),
            long_words,
        )

    with checking(check):
        made = (
            cached(
                Path(cache), "tokens", key, tokenized, TokenizedTexts, CharNgrams, reporter=reporter
            )
            if cache
            else tokenized()
        )
    return TokenizedData(parse_tokenizer(made[0]), *made[1:])


def train_subwords(
    texts: Iterable[str], config: TokenizerConfig, *, max_seq_len: int
) -> tuple[Tokenizer, int]:
    """Train a sub-word tokenizer on the beginnings of texts, and count the words that are too long to learn from.

    The same texts and config give the same bytes. A `ConfigError` if max_vocab_size is less than the number of single
    characters, with which a sub-word model starts.
    """
    tokenizer, splitter, long_words = _untrained(config), _untrained(config), 0

    def learned() -> Iterator[str]:
        nonlocal long_words
        long_words = 0
        for text in texts:
            kept = replace_surrogates(text[: CHARACTERS_PER_TOKEN * max_seq_len])
            if _LONG_PIECE.search(kept):
                words = split_by_tokenizer(splitter, kept)
                short = [word for word in words if len(word) <= LONGEST_LEARNED]
                long_words += len(words) - len(short)
                kept = kept if len(short) == len(words) else " ".join(short)
            yield kept

    first_tokens = SPECIAL_TOKENS
    if config.type == "word_piece":
        first_tokens = [*SPECIAL_TOKENS, *_continuations(splitter, learned())]
    options: dict[str, Any] = {"vocab_size": config.max_vocab_size, "special_tokens": first_tokens}
    trainer: trainers.Trainer
    if config.type == "unigram":  # which has no minimum frequency
        trainer = trainers.UnigramTrainer(
            show_progress=False, unk_token=SPECIAL_TOKENS[UNK_ID], **options
        )
    else:
        kind = trainers.BpeTrainer if config.type == "bpe" else trainers.WordPieceTrainer
        trainer = kind(show_progress=False, min_frequency=config.min_frequency, **options)
    try:
        tokenizer.train_from_iterator(in_chunks(learned()), trainer=trainer)
    except Exception as error:
        raise ConfigError(f"tokenizer.max_vocab_size: {config.max_vocab_size}: {error}") from None
    if tokenizer.get_vocab_size() > config.max_vocab_size:
        raise ConfigError(
            f"tokenizer.max_vocab_size: {config.max_vocab_size} is less than the {tokenizer.get_vocab_size()} single "
            f"characters and special tokens that {config.type} needs for these texts"
        )
    return with_cls_template(
        tokenizer if config.type == "bpe" else _reproducible(tokenizer)
    ), long_words


def train_and_tokenize(
    texts: Iterable[str],
    config: TokenizerConfig,
    *,
    max_seq_len: int,
    base: Tokenizer | None = None,
) -> tuple[Tokenizer, TokenizedTexts, int]:
    """Train a tokenizer, `tokenize` the same texts, and count the words that are too long to learn from.

    Word-level texts are split only once; the vocabulary is that of `trainers.WordLevelTrainer`, as far as texts are
    kept. The tokens of a `base` tokenizer of the same settings keep their ids, and new words come after them; a
    sub-word tokenizer, which can write any word, stays as it is. Errors are those of `train_subwords`.
    """
    if config.type != "word_level":
        tokenizer, long_words = base, 0
        if tokenizer is None:
            tokenizer, long_words = run_interruptibly(
                lambda: train_subwords(texts, config, max_seq_len=max_seq_len)
            )
        return tokenizer, tokenize(tokenizer, texts, max_seq_len=max_seq_len), long_words
    tokenizer = _untrained(config)
    if base:  # which may be of an earlier version that split texts otherwise
        tokenizer.pre_tokenizer = base.pre_tokenizer
    indexed, words = index_tokens(
        ArrowWords(tokenizer).read, texts, max_seq_len=max_seq_len, in_processes=True
    )
    known = base.get_vocab() if base else {}
    first = sorted(known, key=known.__getitem__) or SPECIAL_TOKENS
    counted, are_known = zip(words, indexed.word_counts().tolist(), strict=True), set(first)
    frequent = sorted((-count, word) for word, count in counted if count >= config.min_frequency)
    further = [word for _, word in frequent if word not in are_known]
    kept = [*first, *further][: max(config.max_vocab_size, len(first))]
    vocabulary = {word: number for number, word in enumerate(kept)}
    tokenizer.model = models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID])
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return (
        with_cls_template(tokenizer),
        replace(indexed, word_ids=token_ids(words, vocabulary.get)),
        0,
    )


def _untrained(config: TokenizerConfig) -> Tokenizer:
    kinds: dict[str, Any] = {
        "word_level": models.WordLevel,
        "word_piece": models.WordPiece,
        "bpe": models.BPE,
    }
    is_unigram = config.type == "unigram"
    tokenizer = Tokenizer(
        models.Unigram() if is_unigram else kinds[config.type](unk_token=SPECIAL_TOKENS[UNK_ID])
    )
    steps: list[normalizers.Normalizer] = []
    if config.strip_accents:
        steps += [normalizers.NFD(), normalizers.StripAccents()]
    if config.normalization != "none":
        steps.append({"nfc": normalizers.NFC, "nfkc": normalizers.NFKC}[config.normalization]())
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizer(config.type)
    return tokenizer


def _continuations(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """The characters inside words as `word_piece` writes them, sorted.

    Its trainer would number them in the order of a hash table, which differs from run to run, and merge equally
    frequent pairs in the order of these numbers.
    """
    splitter, characters = ArrowWords(tokenizer), set[str]()
    for chunk in in_chunks(texts):
        words = splitter.split(chunk).flatten().unique().to_pylist()
        characters.update(*(word[1:] for word in words if word not in SPECIAL_TOKENS))
    return [f"##{character}" for character in sorted(characters)]


def _reproducible(trained: Tokenizer) -> Tokenizer:
    """Rebuild a tokenizer so that nothing in it depends on the order of a hash table."""
    vocabulary = json.loads(trained.to_str())["model"]["vocab"]
    if isinstance(
        vocabulary, dict
    ):  # word_piece: a new tokenizer, in which the continuations are ordinary tokens
        tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID]))
    else:  # unigram sums scores in the order of a hash table: the last bits differ, and so the order of equal ones
        special, learned = vocabulary[: len(SPECIAL_TOKENS)], vocabulary[len(SPECIAL_TOKENS) :]
        rounded = sorted(
            ((piece, round(score or 0, 6)) for piece, score in learned),
            key=lambda it: (-it[1], it[0]),
        )
        tokenizer = Tokenizer(models.Unigram(vocab=[*map(tuple, special), *rounded], unk_id=UNK_ID))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return tokenizer


class ArrowWords:
    """Splits many texts into the words of a tokenizer with Arrow's kernels, ten times as fast as `token_reader`.

    Python handles each distinct word once. For few texts, importing Arrow would take longer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._lowercase = lowercases(tokenizer)
        self._tokenizer = tokenizer
        self._spaced_word = lru_cache(MOST_PIECES)(self._spaced_piece)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowWords, (self._tokenizer,)  # without the cache

    def read(self, texts: Sequence[str], most_tokens: int) -> TokenChunk:
        """See `TokenReader`."""
        words = self.split(texts)
        lengths: NDArray[Any] = np.from_dlpack(pc.list_value_length(words)).astype(np.int64)
        if (lengths > most_tokens).any():
            words, lengths = pc.list_slice(words, 0, most_tokens), np.minimum(lengths, most_tokens)
        coded = words.flatten().dictionary_encode()
        indices = np.asarray(np.from_dlpack(coded.indices), dtype=np.int32)
        return TokenChunk(coded.dictionary.to_pylist(), indices, lengths)

    def split(self, texts: Sequence[str]) -> pa.Array:
        """The tokens of each text, `[CLS]` and then its words, normalized: a list of strings a text."""
        pieces = pc.ascii_split_whitespace(_to_arrow([replace_surrogates(text) for text in texts]))
        coded = (
            pieces.flatten().dictionary_encode()
        )  # the words of a piece do not depend on its neighbours
        spaced = type(pieces).from_arrays(
            pieces.offsets, self._spaced(coded.dictionary).take(coded.indices)
        )
        cls, space = _to_arrow([SPECIAL_TOKENS[CLS_ID], " "])
        with_cls = pc.binary_join_element_wise(cls, pc.binary_join(spaced, space), space)
        return pc.ascii_split_whitespace(pc.ascii_rtrim_whitespace(with_cls))

    def _spaced(self, pieces: pa.Array) -> pa.Array:
        """The words of each piece, joined by spaces."""
        is_ascii = pc.string_is_ascii(pieces)
        of_ascii = pieces.filter(is_ascii)
        of_ascii = pc.ascii_lower(of_ascii) if self._lowercase else of_ascii
        of_ascii = pc.replace_substring_regex(of_ascii, pattern=PUNCTUATION, replacement=r" \1 ")
        others = pieces.filter(pc.invert(is_ascii)).to_pylist()
        of_others = [
            self._spaced_word(it) if len(it) <= LONGEST_WORD else self._spaced_piece(it)
            for it in others
        ]
        pieces = pc.replace_with_mask(pieces, is_ascii, of_ascii)
        return pc.replace_with_mask(pieces, pc.invert(is_ascii), _to_arrow(of_others))

    def _spaced_piece(self, piece: str) -> str:
        return " ".join(split_by_tokenizer(self._tokenizer, piece))


def _to_arrow(texts: Sequence[str]) -> pa.Array:
    # `pa.array` would first load pandas, which takes longer than many a data set.
    contents = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, contents)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(
        len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(contents))
    )
