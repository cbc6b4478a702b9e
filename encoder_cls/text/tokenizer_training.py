"""Train a tokenizer, and tokenize the same texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, trainers

from encoder_cls.errors import ConfigError
from encoder_cls.system.lazy_sequences import in_chunks
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.text.tokenizer import (
    lowercases,
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
    TokenChunk,
    TokenizedTexts,
    index_tokens,
)

if TYPE_CHECKING:
    from encoder_cls.config.schema import TokenizerConfig


# A word between spaces that is too long to learn from, or the beginning of one.
_LONG_PIECE = re.compile(rf"(?<!\S)\S{{{LONGEST_LEARNED + 1}}}", re.ASCII)


def train_subwords(
    texts: Iterable[str], config: TokenizerConfig, *, max_seq_len: int
) -> tuple[Tokenizer, int]:
    """Train a sub-word tokenizer on the beginnings of texts.

    The same texts and config give the same bytes.

    Returns:
        The tokenizer, and the number of words that are too long to learn from.

    Raises:
        ConfigError: max_vocab_size is less than the number of single characters, with which a
            sub-word model starts.
    """
    tokenizer = _untrained(config)
    splitter = _untrained(config)
    long_words = 0

    def learned() -> Iterator[str]:
        nonlocal long_words
        long_words = 0
        for text in texts:
            beginning = replace_surrogates(text[: CHARACTERS_PER_TOKEN * max_seq_len])
            if _LONG_PIECE.search(beginning):
                words = split_by_tokenizer(splitter, beginning)
                short_words = [word for word in words if len(word) <= LONGEST_LEARNED]
                if len(short_words) < len(words):
                    long_words += len(words) - len(short_words)
                    beginning = " ".join(short_words)
            yield beginning

    first_tokens = SPECIAL_TOKENS
    if config.type == "word_piece":
        first_tokens = [*SPECIAL_TOKENS, *_continuations(splitter, learned())]
    trainer = _subword_trainer(config, first_tokens)

    try:
        tokenizer.train_from_iterator(in_chunks(learned()), trainer=trainer)
    except Exception as error:
        raise ConfigError(f"tokenizer.max_vocab_size: {config.max_vocab_size}: {error}") from None

    size = tokenizer.get_vocab_size()
    if size > config.max_vocab_size:
        raise ConfigError(
            f"tokenizer.max_vocab_size: {config.max_vocab_size} is less than the {size} single "
            f"characters and special tokens that {config.type} needs for these texts"
        )

    if config.type != "bpe":
        tokenizer = _reproducible(tokenizer)
    return with_cls_template(tokenizer), long_words


def _subword_trainer(config: TokenizerConfig, first_tokens: list[str]) -> trainers.Trainer:
    # A unigram model has no minimum frequency.
    if config.type == "unigram":
        return trainers.UnigramTrainer(
            show_progress=False,
            unk_token=SPECIAL_TOKENS[UNK_ID],
            vocab_size=config.max_vocab_size,
            special_tokens=first_tokens,
        )

    kind = trainers.BpeTrainer if config.type == "bpe" else trainers.WordPieceTrainer
    return kind(
        show_progress=False,
        min_frequency=config.min_frequency,
        vocab_size=config.max_vocab_size,
        special_tokens=first_tokens,
    )


def train_and_tokenize(
    texts: Iterable[str],
    config: TokenizerConfig,
    *,
    max_seq_len: int,
    base: Tokenizer | None = None,
) -> tuple[Tokenizer, TokenizedTexts, int]:
    """Train a tokenizer, and tokenize the same texts.

    Word-level texts are split only once; the vocabulary is that of `trainers.WordLevelTrainer`, as
    far as texts are kept. The tokens of a `base` tokenizer of the same settings keep their ids, and
    new words come after them; a sub-word tokenizer, which can write any word, stays as it is.
    Errors are those of `train_subwords`.

    Returns:
        The tokenizer, the tokens, and the number of words that are too long to learn from.
    """
    if config.type == "word_level":
        tokenizer, tokens = _train_and_tokenize_words(
            texts, config, max_seq_len=max_seq_len, base=base
        )
        return tokenizer, tokens, 0

    if base is not None:
        return base, tokenize(base, texts, max_seq_len=max_seq_len), 0

    tokenizer, long_words = run_interruptibly(
        lambda: train_subwords(texts, config, max_seq_len=max_seq_len)
    )
    return tokenizer, tokenize(tokenizer, texts, max_seq_len=max_seq_len), long_words


def _train_and_tokenize_words(
    texts: Iterable[str],
    config: TokenizerConfig,
    *,
    max_seq_len: int,
    base: Tokenizer | None,
) -> tuple[Tokenizer, TokenizedTexts]:
    tokenizer = _untrained(config)
    first_words = SPECIAL_TOKENS
    if base is not None:
        # A base run of an earlier version may split texts in another way.
        tokenizer.pre_tokenizer = base.pre_tokenizer
        base_vocabulary = base.get_vocab()
        first_words = sorted(base_vocabulary, key=base_vocabulary.__getitem__)

    # Split the texts into words.
    indexed, words = index_tokens(
        ArrowWords(tokenizer).read, texts, max_seq_len=max_seq_len, in_processes=True
    )

    # Add new words that are frequent, the most frequent first, and equal ones by the alphabet.
    counts = dict(zip(words, indexed.word_counts().tolist(), strict=True))
    known = set(first_words)
    new_words = [
        word for word in words if counts[word] >= config.min_frequency and word not in known
    ]
    new_words.sort(key=lambda word: (-counts[word], word))
    size = max(config.max_vocab_size, len(first_words))
    kept = [*first_words, *new_words][:size]

    vocabulary = {word: number for number, word in enumerate(kept)}
    tokenizer.model = models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID])
    tokenizer.add_special_tokens(SPECIAL_TOKENS)

    tokens = replace(indexed, word_ids=token_ids(words, vocabulary.get))
    return with_cls_template(tokenizer), tokens


def _untrained(config: TokenizerConfig) -> Tokenizer:
    """Make a tokenizer that splits texts as the config says, without a vocabulary."""
    unknown = SPECIAL_TOKENS[UNK_ID]
    if config.type == "word_level":
        tokenizer = Tokenizer(models.WordLevel(unk_token=unknown))
    elif config.type == "word_piece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
    elif config.type == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=unknown))
    else:
        tokenizer = Tokenizer(models.Unigram())

    steps: list[normalizers.Normalizer] = []
    if config.strip_accents:
        steps.append(normalizers.NFD())
        steps.append(normalizers.StripAccents())
    if config.normalization == "nfc":
        steps.append(normalizers.NFC())
    elif config.normalization == "nfkc":
        steps.append(normalizers.NFKC())
    if config.lowercase:
        steps.append(normalizers.Lowercase())

    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizer(config.type)
    return tokenizer


def _continuations(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """List the characters inside words as `word_piece` writes them, sorted.

    Its trainer would number them in the order of a hash table, which differs from run to run, and
    merge equally frequent pairs in the order of these numbers.
    """
    splitter = ArrowWords(tokenizer)
    characters: set[str] = set()
    for chunk in in_chunks(texts):
        words = splitter.split(chunk).flatten().unique().to_pylist()
        for word in words:
            if word not in SPECIAL_TOKENS:
                characters.update(word[1:])
    return [f"##{character}" for character in sorted(characters)]


# The decimal places of a unigram score that are kept.
SCORE_PLACES = 6


def _reproducible(trained: Tokenizer) -> Tokenizer:
    """Rebuild a tokenizer so that nothing in it depends on the order of a hash table."""
    model = json.loads(trained.to_str())["model"]
    if model["type"] == "Unigram":
        vocabulary = _rounded_scores(model["vocab"])
        tokenizer = Tokenizer(models.Unigram(vocab=vocabulary, unk_id=UNK_ID))
    else:
        # In a new tokenizer, the continuations of word_piece are ordinary tokens.
        tokenizer = Tokenizer(
            models.WordPiece(vocab=model["vocab"], unk_token=SPECIAL_TOKENS[UNK_ID])
        )

    tokenizer.normalizer = trained.normalizer
    tokenizer.pre_tokenizer = trained.pre_tokenizer
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return tokenizer


def _rounded_scores(vocabulary: list[tuple[str, Any]]) -> list[tuple[str, float]]:
    """Round the scores of learned pieces, and sort these again.

    The trainer sums scores in the order of a hash table, so the last digits differ from run to run,
    and with them the order of equal scores.
    """
    special = [(piece, score) for piece, score in vocabulary[: len(SPECIAL_TOKENS)]]
    learned = []
    for piece, score in vocabulary[len(SPECIAL_TOKENS) :]:
        learned.append((piece, round(score or 0, SCORE_PLACES)))

    def rank(entry: tuple[str, float]) -> tuple[float, str]:
        piece, score = entry
        return -score, piece

    learned.sort(key=rank)
    return [*special, *learned]


# In ASCII texts, normalizer and pre-tokenizer only separate this and convert to lower case.
PUNCTUATION = r"([^\w\s]+)"
# The words of texts that are not ASCII whose splitting is remembered, in some 30 MB.
MAX_PIECES = 1 << 16


class ArrowWords:
    """Splits many texts into the words of a tokenizer with Arrow's kernels.

    That is ten times as fast as `token_reader`: Python handles each distinct word once. For few
    texts, importing Arrow would take longer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._lowercase = lowercases(tokenizer)
        self._tokenizer = tokenizer
        self._spaced_word = lru_cache(MAX_PIECES)(self._spaced_piece)

    def __reduce__(self) -> tuple[Any, ...]:
        # Other processes get a copy without the cache.
        return ArrowWords, (self._tokenizer,)

    def read(self, texts: Sequence[str], most_tokens: int) -> TokenChunk:
        """Read the tokens of texts; this is a `TokenReader`."""
        words = self.split(texts)
        lengths: NDArray[Any] = np.from_dlpack(pc.list_value_length(words)).astype(np.int64)
        if (lengths > most_tokens).any():
            words = pc.list_slice(words, 0, most_tokens)
            lengths = np.minimum(lengths, most_tokens)

        coded = words.flatten().dictionary_encode()
        indices = np.asarray(np.from_dlpack(coded.indices), dtype=np.int32)
        return TokenChunk(coded.dictionary.to_pylist(), indices, lengths)

    def split(self, texts: Sequence[str]) -> pa.Array:
        """Split each text into a list of strings: `[CLS]` and then its words, normalized."""
        # Split at spaces into pieces. The words of a piece do not depend on its neighbours, so each
        # distinct piece is split once; spaces separate its words.
        readable = [replace_surrogates(text) for text in texts]
        pieces = pc.ascii_split_whitespace(_to_arrow(readable))
        coded = pieces.flatten().dictionary_encode()
        spaced_pieces = self._spaced(coded.dictionary).take(coded.indices)

        # Join the pieces of each text, behind `[CLS]`.
        cls, space = _to_arrow([SPECIAL_TOKENS[CLS_ID], " "])
        pieces_of_texts = type(pieces).from_arrays(pieces.offsets, spaced_pieces)
        spaced_texts = pc.binary_join(pieces_of_texts, space)
        with_cls = pc.binary_join_element_wise(cls, spaced_texts, space)

        return pc.ascii_split_whitespace(pc.ascii_rtrim_whitespace(with_cls))

    def _spaced(self, pieces: pa.Array) -> pa.Array:
        """Join the words of each piece by spaces."""
        is_ascii = pc.string_is_ascii(pieces)
        is_other = pc.invert(is_ascii)

        # Arrow can split ASCII by itself.
        ascii_words = pieces.filter(is_ascii)
        if self._lowercase:
            ascii_words = pc.ascii_lower(ascii_words)
        ascii_words = pc.replace_substring_regex(
            ascii_words, pattern=PUNCTUATION, replacement=r" \1 "
        )

        # The tokenizer splits the others; words of usual length are remembered.
        other_words = []
        for piece in pieces.filter(is_other).to_pylist():
            split = self._spaced_word if len(piece) <= LONGEST_WORD else self._spaced_piece
            other_words.append(split(piece))

        pieces = pc.replace_with_mask(pieces, is_ascii, ascii_words)
        return pc.replace_with_mask(pieces, is_other, _to_arrow(other_words))

    def _spaced_piece(self, piece: str) -> str:
        return " ".join(split_by_tokenizer(self._tokenizer, piece))


def _to_arrow(texts: Sequence[str]) -> pa.Array:
    # `pa.array` would first load pandas, which takes longer than many a data set.
    contents = [text.encode() for text in texts]
    lengths = [len(content) for content in contents]
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(
        len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(contents))
    )
