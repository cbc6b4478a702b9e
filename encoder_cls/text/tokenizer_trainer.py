"""Train a tokenizer."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, models, normalizers, trainers

from encoder_cls.errors import ConfigError
from encoder_cls.system.disk_arrays import in_chunks
from encoder_cls.text.arrow_words import ArrowWords
from encoder_cls.text.tokenizer import pre_tokenizer, token_ids, tokenize, with_cls_template
from encoder_cls.text.tokens import CHARACTERS_PER_TOKEN, SPECIAL_TOKENS, UNK_ID, TokenizedTexts, index_tokens
from encoder_cls.text.words import replace_surrogates, split_by_tokenizer

if TYPE_CHECKING:
    from encoder_cls.config import TokenizerConfig

# Sub-word models do not learn from longer words: one attachment would fill the vocabulary, in minutes.
LONGEST_LEARNED = 500
_LONG_PIECE = re.compile(rf"(?<!\S)\S{{{LONGEST_LEARNED + 1},}}", re.ASCII)
WITHOUT_LIMIT = sys.maxsize // CHARACTERS_PER_TOKEN


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer; the same texts and config give the same bytes.

    Raises:
        ConfigError: max_vocab_size is less than the characters that a sub-word model begins with.
    """
    if config.type == "word_level":
        return train_and_tokenize(texts, config, max_seq_len=WITHOUT_LIMIT)[0]
    return train_subwords(texts, config, max_seq_len=WITHOUT_LIMIT)[0]


def train_subwords(texts: Iterable[str], config: TokenizerConfig, *, max_seq_len: int) -> tuple[Tokenizer, int]:
    """Train a sub-word tokenizer on the beginnings of texts, and count the words that are too long to learn from.

    Raises:
        ConfigError: as `train_tokenizer`.
    """
    tokenizer, splitter, long_words = _untrained(config), _untrained(config), 0

    def learned() -> Iterator[str]:
        nonlocal long_words
        long_words = 0
        for text in texts:
            kept, left_out = _without_long_words(
                replace_surrogates(text[: CHARACTERS_PER_TOKEN * max_seq_len]), splitter
            )
            long_words += left_out
            yield kept

    first_tokens = SPECIAL_TOKENS
    if config.type == "word_piece":
        first_tokens = [*SPECIAL_TOKENS, *_continuations(splitter, learned())]
    try:
        tokenizer.train_from_iterator(in_chunks(learned()), trainer=_trainer(config, first_tokens))
    except Exception as error:
        raise ConfigError(f"tokenizer.max_vocab_size: {config.max_vocab_size}: {error}") from None
    if tokenizer.get_vocab_size() > config.max_vocab_size:
        raise ConfigError(
            f"tokenizer.max_vocab_size: {config.max_vocab_size} is less than the {tokenizer.get_vocab_size()} single "
            f"characters and special tokens that {config.type} needs for these texts"
        )
    if config.type in {"word_piece", "unigram"}:
        tokenizer = _reproducible(tokenizer)
    return with_cls_template(tokenizer), long_words


def _without_long_words(text: str, splitter: Tokenizer) -> tuple[str, int]:
    """A text without its words of more than `LONGEST_LEARNED` characters, and the number of these."""
    left_out = 0

    def shortened(piece: re.Match[str]) -> str:
        nonlocal left_out
        words = split_by_tokenizer(splitter, piece[0])
        kept = [word for word in words if len(word) <= LONGEST_LEARNED]
        left_out += len(words) - len(kept)
        return piece[0] if len(kept) == len(words) else " ".join(kept)

    return _LONG_PIECE.sub(shortened, text), left_out


def train_and_tokenize(
    texts: Iterable[str], config: TokenizerConfig, *, max_seq_len: int, former: Tokenizer | None = None
) -> tuple[Tokenizer, TokenizedTexts]:
    """Train a tokenizer, and `tokenize` the same texts; where tokens are words, these are found only once.

    Words are then counted as far as texts are kept, and are those that `trainers.WordLevelTrainer` finds.

    Args:
        texts: the texts.
        config: the settings.
        max_seq_len: as of `tokenize`.
        former: a tokenizer of the same settings whose tokens keep their ids: new words come after them. Sub-words
            can write any word, and stay as they are.

    Raises:
        ConfigError: as `train_tokenizer`.
    """
    if config.type != "word_level":
        tokenizer = former or train_subwords(texts, config, max_seq_len=max_seq_len)[0]
        return tokenizer, tokenize(tokenizer, texts, max_seq_len=max_seq_len)
    tokenizer = _untrained(config)
    found, words = index_tokens(ArrowWords(tokenizer).read, texts, max_seq_len=max_seq_len, in_processes=True)
    known = former.get_vocab() if former else {}
    vocabulary = _most_frequent(words, found.word_counts().tolist(), config, known)
    tokenizer.model = models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID])
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return with_cls_template(tokenizer), replace(found, word_ids=token_ids(words, vocabulary.get))


def _most_frequent(
    words: Sequence[str], counts: Sequence[int], config: TokenizerConfig, known: Mapping[str, int]
) -> dict[str, int]:
    """The ids of the most frequent words; known ones keep theirs."""
    first = sorted(known, key=known.__getitem__) or SPECIAL_TOKENS
    counted, is_known = zip(words, counts, strict=True), set(first)
    frequent = [(-count, word) for word, count in counted if count >= config.min_frequency]
    further = [word for _, word in sorted(frequent) if word not in is_known]
    return {word: number for number, word in enumerate([*first, *further][: max(config.max_vocab_size, len(first))])}


def _untrained(config: TokenizerConfig) -> Tokenizer:
    kinds: dict[str, Any] = {"word_level": models.WordLevel, "word_piece": models.WordPiece, "bpe": models.BPE}
    is_unigram = config.type == "unigram"
    tokenizer = Tokenizer(models.Unigram() if is_unigram else kinds[config.type](unk_token=SPECIAL_TOKENS[UNK_ID]))
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


def _trainer(config: TokenizerConfig, first_tokens: Sequence[str]) -> trainers.Trainer:
    options: dict[str, Any] = {"vocab_size": config.max_vocab_size, "special_tokens": first_tokens}
    if config.type == "unigram":  # has no counts to limit
        return trainers.UnigramTrainer(show_progress=False, unk_token=SPECIAL_TOKENS[UNK_ID], **options)
    kind = trainers.BpeTrainer if config.type == "bpe" else trainers.WordPieceTrainer
    return kind(show_progress=False, min_frequency=config.min_frequency, **options)


def _continuations(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """The characters inside words as `word_piece` writes them, sorted.

    Its trainer would number them in the order of a hash table, another one in each run, and merge equally frequent
    pairs in the order of these numbers.
    """
    splitter, found = ArrowWords(tokenizer), set[str]()
    for chunk in in_chunks(texts):
        words = splitter.split(chunk).flatten().unique().to_pylist()
        found.update(*(word[1:] for word in words if word not in SPECIAL_TOKENS))
    return [f"##{character}" for character in sorted(found)]


def _reproducible(trained: Tokenizer) -> Tokenizer:
    """The same tokenizer without traces of the order of a hash table."""
    vocabulary = json.loads(trained.to_str())["model"]["vocab"]
    if isinstance(vocabulary, dict):  # word_piece: start again, so that `first_tokens` are no special tokens
        tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID]))
    else:  # unigram adds up scores in the order of a hash table: the last bits differ, and the order of equals
        special, learned = vocabulary[: len(SPECIAL_TOKENS)], vocabulary[len(SPECIAL_TOKENS) :]
        rounded = sorted(((piece, round(score or 0, 6)) for piece, score in learned), key=lambda it: (-it[1], it[0]))
        tokenizer = Tokenizer(models.Unigram(vocab=[*map(tuple, special), *rounded], unk_id=UNK_ID))
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return tokenizer
