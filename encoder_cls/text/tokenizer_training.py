"""Train a tokenizer, and tokenize the same texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, trainers

from encoder_cls.errors import ConfigError
from encoder_cls.system.lazy_sequences import in_chunks
from encoder_cls.system.row_text import plain_text
from encoder_cls.system.stop import run_interruptibly
from encoder_cls.text.checked_texts import check_are_several
from encoder_cls.text.row_tokens import (
    form_of_tokens,
    kind_of_token,
    learned_tokens,
    reader_of_rows,
    row_form,
)
from encoder_cls.text.subwords import CONTINUATION, reproducible, without_rare_subwords
from encoder_cls.text.tokenizer import (
    lowercases,
    pre_tokenizer,
    removes_invisible,
    replace_surrogates,
    split_by_tokenizer,
    token_ids,
    tokenize,
    with_cls_template,
)
from encoder_cls.text.tokens import (
    CHARACTERS_PER_TOKEN,
    CLS_ID,
    MAX_LEARNED_LENGTH,
    MAX_WORD_LENGTH,
    SPECIAL_TOKENS,
    UNK_ID,
    WORD,
    TokenChunk,
    TokenizedTexts,
    index_tokens,
)

if TYPE_CHECKING:
    from encoder_cls.config.schema import TokenizerConfig


def train_subwords(
    texts: Iterable[str],
    config: TokenizerConfig,
    *,
    max_seq_len: int,
    row_tokens: Sequence[str] = (),
) -> tuple[Tokenizer, int]:
    """Train a sub-word tokenizer on the beginnings of texts, and count words that are too long.

    `row_tokens`, of features and fields, follow the special tokens. Equal texts and configs give
    the same JSON. Texts are read up to two times, `CHARACTERS_PER_TOKEN` characters for each token
    that the encoder reads.
    """
    tokenizer = _untrained(config)
    splitter = _untrained(config)
    long_words = 0

    def beginnings() -> Iterator[str]:
        nonlocal long_words
        # This may be the second time that the texts are read.
        long_words = 0
        for text in texts:
            words = plain_text(text) if row_tokens else text
            beginning = replace_surrogates(words[: CHARACTERS_PER_TOKEN * max_seq_len])
            beginning, num_long = _without_long_words(beginning, splitter)
            long_words += num_long
            yield beginning

    own_tokens = [*SPECIAL_TOKENS, *row_tokens]
    first_tokens = own_tokens
    if config.type == "word_piece":
        first_tokens = [*own_tokens, *_continuations(splitter, beginnings())]
    trainer = _subword_trainer(config, first_tokens)

    try:
        tokenizer.train_from_iterator(in_chunks(beginnings()), trainer=trainer)
    except Exception as error:
        raise ConfigError(f"tokenizer.max_vocab_size: {config.max_vocab_size}: {error}") from None

    size = tokenizer.get_vocab_size()
    if size > config.max_vocab_size:
        raise ConfigError(
            f"tokenizer.max_vocab_size: {config.max_vocab_size} is less than the {size} single "
            f"characters and special tokens that {config.type} needs for these texts"
        )

    if config.type != "bpe":
        tokenizer = reproducible(tokenizer, own_tokens)
    return with_cls_template(tokenizer), long_words


# The beginning of a piece between spaces that may have a word too long to learn from.
_LONG_PIECE = re.compile(rf"(?<!\S)\S{{{MAX_LEARNED_LENGTH + 1}}}", re.ASCII)


def _without_long_words(text: str, splitter: Tokenizer) -> tuple[str, int]:
    """Leave out words that are too long to learn from, and count them."""
    # Few texts have a long piece, so that few are split into words here.
    if not _LONG_PIECE.search(text):
        return text, 0

    words = split_by_tokenizer(splitter, text)
    short_words = [word for word in words if len(word) <= MAX_LEARNED_LENGTH]
    num_long = len(words) - len(short_words)
    if num_long == 0:
        return text, 0
    return " ".join(short_words), num_long


def _subword_trainer(config: TokenizerConfig, first_tokens: list[str]) -> trainers.Trainer:
    # The trainer of a unigram model takes no minimum frequency. The others save work by it: what
    # occurs less often is in fewer texts, too.
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


def train_tokenizer(
    texts: Iterable[str], config: TokenizerConfig | None = None, *, max_seq_len: int = 512
) -> Tokenizer:
    """Train a tokenizer on texts, by default with the default settings.

    It learns from somewhat more of each text than the `max_seq_len` tokens that the encoder reads.

    Raises:
        ConfigError: max_vocab_size is less than the number of single characters.
        TypeError: `texts` is a single text or a table.
    """
    # Imported here, because prediction imports this module, and needs no configs.
    from encoder_cls.config.schema import TokenizerConfig

    check_are_several(texts, "train_tokenizer")
    config = config or TokenizerConfig()
    tokenizer, _, _ = train_and_tokenize(texts, config, max_seq_len=max_seq_len)
    return tokenizer


def train_and_tokenize(
    texts: Iterable[str],
    config: TokenizerConfig,
    *,
    max_seq_len: int,
    groups: NDArray[np.int64] | None = None,
    base: Tokenizer | None = None,
) -> tuple[Tokenizer, TokenizedTexts, int]:
    """Train a tokenizer, and tokenize the same texts.

    A word-level one gets the vocabulary of `trainers.WordLevelTrainer`, but texts are split only
    once. A word, or a longer sub-word, is learned if it is in texts of `config.min_frequency`
    groups; by default, each text is a group.

    `base`, of a run that is continued, has the same settings: a word-level one keeps its ids, and
    new words follow; a sub-word one can write any word, and stays.

    Returns:
        The tokenizer, the tokens, and the number of words too long to learn from.

    Raises:
        ConfigError: max_vocab_size is less than the number of single characters.
    """
    if not isinstance(texts, Collection):
        texts = list(texts)
    if groups is None:
        groups = np.arange(len(texts))

    if config.type == "word_level":
        tokenizer, tokens = _train_and_tokenize_words(
            texts, config, max_seq_len=max_seq_len, groups=groups, base=base
        )
        return tokenizer, tokens, 0

    if base is not None:
        return base, tokenize(base, texts, max_seq_len=max_seq_len), 0

    row_tokens = learned_tokens(texts, groups, min_frequency=config.min_frequency)
    tokenizer, long_words = run_interruptibly(
        lambda: train_subwords(texts, config, max_seq_len=max_seq_len, row_tokens=row_tokens)
    )
    if config.min_frequency > 1:
        plain_texts = map(plain_text, texts) if row_tokens else texts
        read = ArrowWords(_untrained(config)).read
        indexed, words = index_tokens(read, plain_texts, max_seq_len=max_seq_len, in_processes=True)
        tokenizer = without_rare_subwords(
            tokenizer, indexed, words, groups, min_groups=config.min_frequency
        )
    return tokenizer, tokenize(tokenizer, texts, max_seq_len=max_seq_len), long_words


def _train_and_tokenize_words(
    texts: Collection[str],
    config: TokenizerConfig,
    *,
    max_seq_len: int,
    groups: NDArray[np.int64],
    base: Tokenizer | None,
) -> tuple[Tokenizer, TokenizedTexts]:
    tokenizer = _untrained(config)

    # Special tokens, or all words of the base tokenizer, keep their ids.
    if base is not None:
        base_vocabulary = base.get_vocab()
        first_words = sorted(base_vocabulary, key=base_vocabulary.__getitem__)
        form = row_form(base)
    else:
        row_tokens = learned_tokens(texts, groups, min_frequency=config.min_frequency)
        first_words = [*SPECIAL_TOKENS, *row_tokens]
        form = form_of_tokens(row_tokens)

    # Split the texts into words. For now, the id of a word is its index in the list of words.
    indexed, words = index_tokens(
        reader_of_rows(ArrowWords(tokenizer).read, form),
        texts,
        max_seq_len=max_seq_len,
        kind_of=kind_of_token if form else None,
        in_processes=True,
    )

    # Find the new words that are in texts of enough groups, and sort them by decreasing frequency.
    # Equally frequent words are in alphabetical order.
    counts = dict(zip(words, indexed.word_counts().tolist(), strict=True))
    if form:
        counts = {word: number for word, number in counts.items() if kind_of_token(word) == WORD}
    known_words = set(first_words)
    frequent_words: Iterable[str] = counts
    if config.min_frequency > 1:
        is_frequent = indexed.group_counts(groups) >= config.min_frequency
        frequent_words = compress(words, is_frequent)
    new_words = [word for word in frequent_words if word in counts and word not in known_words]
    new_words.sort(key=lambda word: (-counts[word], word))

    # Add as many of them as fit; the words of a base tokenizer are all kept.
    size = max(config.max_vocab_size, len(first_words))
    all_words = [*first_words, *new_words][:size]

    vocabulary = {word: token_id for token_id, word in enumerate(all_words)}
    tokenizer.model = models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID])
    tokenizer.add_special_tokens(SPECIAL_TOKENS)

    tokens = replace(indexed, word_ids=token_ids(words, vocabulary.get))
    return with_cls_template(tokenizer), tokens


def _untrained(config: TokenizerConfig) -> Tokenizer:
    unknown = SPECIAL_TOKENS[UNK_ID]
    if config.type == "word_level":
        tokenizer = Tokenizer(models.WordLevel(unk_token=unknown))
    elif config.type == "word_piece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
    elif config.type == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=unknown))
    else:
        tokenizer = Tokenizer(models.Unigram())

    steps: list[normalizers.Normalizer] = [removes_invisible()]
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
    """The characters that continue a word, as word_piece writes them, such as `##a`, sorted.

    Otherwise the trainer would number them in the order of a hash table, which differs from run to
    run, and merge equally frequent pairs in that order.
    """
    splitter = ArrowWords(tokenizer)
    characters: set[str] = set()
    for chunk in in_chunks(texts):
        words = splitter.split(chunk).flatten().unique().to_pylist()
        for word in words:
            if word not in SPECIAL_TOKENS:
                characters.update(word[1:])
    return [f"{CONTINUATION}{character}" for character in sorted(characters)]


# A run of punctuation. In ASCII texts, the normalizer and the pre-tokenizer only separate such runs
# from words, and convert letters to lower case.
PUNCTUATION = r"([^\w\s]+)"

# The maximum number of pieces of text, other than ASCII, whose words are cached. They take some
# 30 MB.
MAX_PIECES = 1 << 16


class ArrowWords:
    """Splits many texts into the words of a tokenizer with Arrow's kernels.

    It is ten times as fast as `token_reader`, since Python handles each distinct word once; for few
    texts, importing Arrow would take longer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._lowercase = lowercases(tokenizer)
        self._tokenizer = tokenizer
        self._cached_spaced_piece = lru_cache(MAX_PIECES)(self._spaced_piece)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy for another process is made without the cache.
        return ArrowWords, (self._tokenizer,)

    def read(self, texts: Sequence[str], max_tokens: int) -> TokenChunk:
        """Split texts into tokens; this is a `TokenReader`."""
        words = self.split(texts)
        lengths: NDArray[Any] = np.from_dlpack(pc.list_value_length(words)).astype(np.int64)
        if (lengths > max_tokens).any():
            words = pc.list_slice(words, 0, max_tokens)
            lengths = np.minimum(lengths, max_tokens)

        coded = words.flatten().dictionary_encode()
        indices = np.asarray(np.from_dlpack(coded.indices), dtype=np.int32)
        return TokenChunk(coded.dictionary.to_pylist(), indices, lengths)

    def split(self, texts: Sequence[str]) -> pa.Array:
        """Lists of strings: `[CLS]`, then the normalized words."""
        # Split the texts into pieces at spaces. The words of a piece do not depend on its
        # neighbours, so each distinct piece is split only once. Put spaces between its words.
        readable = [replace_surrogates(text) for text in texts]
        pieces = pc.ascii_split_whitespace(_to_arrow(readable))
        coded = pieces.flatten().dictionary_encode()
        spaced_pieces = self._spaced(coded.dictionary).take(coded.indices)

        # Join the pieces of each text again, with `[CLS]` before them.
        cls, space = _to_arrow([SPECIAL_TOKENS[CLS_ID], " "])
        pieces_of_texts = type(pieces).from_arrays(pieces.offsets, spaced_pieces)
        spaced_texts = pc.binary_join(pieces_of_texts, space)
        with_cls = pc.binary_join_element_wise(cls, spaced_texts, space)

        return pc.ascii_split_whitespace(pc.ascii_rtrim_whitespace(with_cls))

    def _spaced(self, pieces: pa.Array) -> pa.Array:
        is_ascii = pc.string_is_ascii(pieces)
        is_other = pc.invert(is_ascii)

        ascii_words = pieces.filter(is_ascii)
        if self._lowercase:
            ascii_words = pc.ascii_lower(ascii_words)
        ascii_words = pc.replace_substring_regex(
            ascii_words, pattern=PUNCTUATION, replacement=r" \1 "
        )

        # Split all other pieces by the tokenizer. The words of short pieces are cached.
        other_words = []
        for piece in pieces.filter(is_other).to_pylist():
            if len(piece) <= MAX_WORD_LENGTH:
                other_words.append(self._cached_spaced_piece(piece))
            else:
                other_words.append(self._spaced_piece(piece))

        pieces = pc.replace_with_mask(pieces, is_ascii, ascii_words)
        return pc.replace_with_mask(pieces, is_other, _to_arrow(other_words))

    def _spaced_piece(self, piece: str) -> str:
        return " ".join(split_by_tokenizer(self._tokenizer, piece))


def _to_arrow(texts: Sequence[str]) -> pa.Array:
    # Make the array from buffers: `pa.array` would import pandas, which takes longer than it takes
    # to read a small data set.
    contents = [text.encode() for text in texts]
    lengths = [len(content) for content in contents]
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(
        len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(contents))
    )
