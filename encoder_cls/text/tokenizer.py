"""Texts in, a tokenizer out: trained on them, or read from its file; and the tokens it makes of texts.

The special tokens have fixed ids and come first; typed by a user they are ordinary characters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from encoder_cls.config import TokenizerConfig
from encoder_cls.errors import ConfigError
from encoder_cls.system.disk_arrays import in_chunks
from encoder_cls.text.pre_tokenizer import WordSplitter, reader, replace_surrogates
from encoder_cls.text.token_arrays import (
    CHARACTERS_PER_TOKEN,
    CLS_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    TokenizedTexts,
    index_tokens,
)

# Scripts written without spaces between words: each character is a token of its own.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"

NORMALIZERS = {"NFD", "StripAccents", "NFC", "NFKC", "Lowercase"}


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer; the same texts and config give the same bytes.

    Half surrogate pairs, which no tokenizer can read, count as U+FFFD.

    Raises:
        ConfigError: max_vocab_size is less than the characters that a sub-word model begins with.
    """
    if config.type == "word_level":
        return train_and_tokenize(texts, config, max_seq_len=sys.maxsize // CHARACTERS_PER_TOKEN)[0]
    return _train_subwords(texts, config)


def _train_subwords(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    tokenizer = _untrained(config)
    first_tokens = SPECIAL_TOKENS
    if config.type == "word_piece":
        first_tokens = [*SPECIAL_TOKENS, *_continuations(tokenizer, texts)]
    try:
        tokenizer.train_from_iterator(in_chunks(map(replace_surrogates, texts)), trainer=_trainer(config, first_tokens))
    except Exception as error:
        raise ConfigError(f"tokenizer.max_vocab_size: {config.max_vocab_size}: {error}") from None
    if tokenizer.get_vocab_size() > config.max_vocab_size:
        raise ConfigError(
            f"tokenizer.max_vocab_size: {config.max_vocab_size} is less than the {tokenizer.get_vocab_size()} single "
            f"characters and special tokens that {config.type} needs for these texts"
        )
    if config.type in {"word_piece", "unigram"}:
        tokenizer = _reproducible(tokenizer)
    return _with_cls_template(tokenizer)


def train_and_tokenize(
    texts: Iterable[str], config: TokenizerConfig, *, max_seq_len: int
) -> tuple[Tokenizer, TokenizedTexts]:
    """Train a tokenizer, and `tokenize` the same texts; where tokens are words, these are found only once.

    Words are then counted as far as texts are kept, and are those that `trainers.WordLevelTrainer` finds.

    Raises:
        ConfigError: as `train_tokenizer`.
    """
    if config.type != "word_level":
        tokenizer = _train_subwords(texts, config)
        return tokenizer, tokenize(tokenizer, texts, max_seq_len=max_seq_len)
    tokenizer = _untrained(config)
    found, words = index_tokens(WordSplitter(tokenizer).split, texts, max_seq_len=max_seq_len)
    vocabulary = _most_frequent(words, found.word_counts().tolist(), config)
    tokenizer.model = models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK_ID])
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return _with_cls_template(tokenizer), replace(found, word_ids=_ids(words, vocabulary.get))


def tokenize(tokenizer: Tokenizer, texts: Iterable[str], *, max_seq_len: int) -> TokenizedTexts:
    """Turn texts into token ids, `[CLS]` first, for an encoder that reads `max_seq_len` tokens of each.

    Half surrogate pairs, which no tokenizer can read, count as U+FFFD.
    """
    found, words = index_tokens(reader(tokenizer), texts, max_seq_len=max_seq_len)
    return replace(found, word_ids=_ids(words, tokenizer.token_to_id))


def _most_frequent(words: Sequence[str], counts: Sequence[int], config: TokenizerConfig) -> dict[str, int]:
    """The words to be known, with their ids."""
    counted = zip(words, counts, strict=True)
    frequent = [(-count, word) for word, count in counted if count >= config.min_frequency]
    known = [word for _, word in sorted(frequent) if word not in SPECIAL_TOKENS]
    return {word: number for number, word in enumerate([*SPECIAL_TOKENS, *known][: config.max_vocab_size])}


def _ids(words: Sequence[str], id_of: Callable[[str], int | None]) -> NDArray[np.int32]:
    """The ids of words; what has none is unknown."""
    ids = [id_of(word) for word in words]
    return np.array([UNK_ID if number is None else number for number in ids], dtype=np.int32)


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
    splitter, found = WordSplitter(tokenizer), set[str]()
    for chunk in in_chunks(texts):
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
    return _with_cls_template(tokenizer)


def _known_pre_tokenizers() -> list[Any]:
    tokenizers = []
    for kind in get_args(TokenizerConfig.model_fields["type"].annotation):
        tokenizer = Tokenizer(models.WordLevel())
        tokenizer.pre_tokenizer = _pre_tokenizer(TokenizerConfig(type=kind))
        tokenizers.append(json.loads(tokenizer.to_str())["pre_tokenizer"])
    return tokenizers


class Span(NamedTuple):
    """Where a token stands in its text, in characters, and which word of the text it is (a part) of."""

    start: int
    end: int
    word: int | None


def token_spans(tokenizer: Tokenizer, text: str, *, max_seq_len: int) -> list[Span]:
    """Where the tokens of a text stand that an encoder reads, `[CLS]` left out."""
    kept = text[: CHARACTERS_PER_TOKEN * max_seq_len]
    read = replace_surrogates(kept)
    encoding = tokenizer.encode(read)
    found = zip(encoding.offsets, encoding.word_ids, strict=True)
    spans = [Span(start, end, word) for (start, end), word in found][1:max_seq_len]
    if len(read) == len(kept):
        return spans
    starts = _starts_in(kept, read)
    return [Span(starts[start], starts[end], word) for start, end, word in spans]


def _starts_in(text: str, read: str) -> list[int]:
    """Where in a text each character of `replace_surrogates(text)` begins, and where the text ends.

    There, one character stands for the two halves of a surrogate pair.
    """
    starts = [0]
    for character in read:
        is_pair = character > "\uffff" and text[starts[-1]] < "\ue000"
        starts.append(starts[-1] + (2 if is_pair else 1))
    return starts


def _with_cls_template(tokenizer: Tokenizer) -> Tokenizer:
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
