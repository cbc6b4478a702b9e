"""Training of tokenizers: the same texts give the same bytes, and rare words are no tokens."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.tokenizer import example_texts, example_tokenizer, train_tokenizer
from tokenizers import Tokenizer, trainers

import encoder_cls
from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.errors import ConfigError
from encoder_cls.system import lazy_sequences
from encoder_cls.text.tokenizer import parse_tokenizer, tokenize
from encoder_cls.text.tokenizer_training import train_and_tokenize, train_subwords
from encoder_cls.text.tokens import (
    CHARACTERS_PER_TOKEN,
    CLS_ID,
    KEPT_PER_TOKEN,
    MASK_ID,
    MAX_LEARNED_LENGTH,
    PAD_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    TokenizedTexts,
)

SUBWORD_TYPES = ["word_piece", "bpe", "unigram"]
TYPES = ["word_level", *SUBWORD_TYPES]

# Most code that learns word pieces is that of BPE.
QUICK = [pytest.param("word_piece", marks=pytest.mark.slow), "bpe", "unigram"]

every_type = pytest.mark.parametrize("kind", ["word_level", *QUICK])
every_subword_type = pytest.mark.parametrize("kind", QUICK)


def train_on(*texts: str, **values: object) -> Tokenizer:
    return train_tokenizer(texts, TokenizerConfig.model_validate({"min_frequency": 1, **values}))


def ids_of(tokenizer: Tokenizer, text: str, max_seq_len: int = 64) -> list[int]:
    return tokenize(tokenizer, [text], max_seq_len=max_seq_len).input_ids().tolist()


# Prints a hash of the tokenizer of each type.
PROGRAM = """
import hashlib, sys
from encoder_cls.config.schema import DataConfig, TokenizerConfig
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.text.tokenizer_training import train_and_tokenize

texts = load_dataset(DataConfig(train="example:train")).train.texts
for kind in sys.argv[1:]:
    config = TokenizerConfig(type=kind, max_vocab_size=600)
    tokenizer, *_ = train_and_tokenize(texts, config, max_seq_len=1 << 20)
    print(hashlib.sha256(tokenizer.to_str().encode()).hexdigest())
"""


@pytest.mark.slow
def test_the_same_texts_give_the_same_bytes_in_another_process():
    """A process with another hash seed trains the same tokenizer."""
    package = str(Path(encoder_cls.__file__).parents[1])
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": package}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *TYPES],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )

    hashes = [
        hashlib.sha256(example_tokenizer(kind).to_str().encode()).hexdigest() for kind in TYPES
    ]
    assert ended.stdout.split() == hashes


@every_type
def test_ids_have_no_gaps_and_start_with_the_special_tokens(kind):
    """Model and batches rely on the ids of special tokens; `max_vocab_size` includes them."""
    vocabulary = example_tokenizer(kind).get_vocab()

    assert sorted(vocabulary.values()) == list(range(600))
    assert vocabulary["[PAD]"] == PAD_ID == 0
    assert vocabulary["[UNK]"] == UNK_ID == 1
    assert vocabulary["[CLS]"] == CLS_ID == 2
    assert vocabulary["[MASK]"] == MASK_ID == 3


@pytest.mark.parametrize("size", [16, 30_000])
def test_words_are_those_that_the_library_finds(size):
    """The trainer of `tokenizers` makes the same file, with the same order of words."""
    odd_texts = ["", " ", "[PAD]", "é" * 99, "I'd say: NO!!", "日本語のテスト", "🙂", "zzz qqq"]
    texts = ["where is my order", *odd_texts, *example_texts()]
    tokenizer = train_on(*texts, max_vocab_size=size, min_frequency=1)

    expected = parse_tokenizer(tokenizer.to_str())
    trainer = trainers.WordLevelTrainer(
        vocab_size=size,
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    expected.train_from_iterator(texts, trainer)

    assert tokenizer.to_str() == expected.to_str()


@every_type
def test_half_surrogates_are_learnt_as_the_replacement_character(kind):
    """A tokenizer can be trained on texts that cannot be encoded in UTF-8."""
    broken = train_on("a \ud800 b", "c \ud800", type=kind)
    replaced = train_on("a \ufffd b", "c \ufffd", type=kind)

    assert broken.to_str() == replaced.to_str()
    assert broken.token_to_id("\ufffd") is not None


def test_word_piece_continues_words_with_their_characters_alone():
    """No characters of `[CLS]`, which begins each sequence, become tokens."""
    vocabulary = set(train_on("ab abc", type="word_piece").get_vocab())
    assert vocabulary >= {"a", "##b", "##c"}
    assert not vocabulary & {"##C", "##[", "##]"}


@every_subword_type
def test_a_vocabulary_too_small_for_the_characters_is_refused(kind):
    """A sub-word model starts with all characters; the error names the limit that is too low."""
    config = TokenizerConfig(type=kind, max_vocab_size=16)
    with pytest.raises(ConfigError, match="max_vocab_size"):
        train_tokenizer(example_texts(), config)


@every_subword_type
def test_sub_word_models_learn_nothing_from_long_words_and_from_what_is_not_read(kind):
    """The file depends neither on an attachment nor on characters that are not read."""
    config = TokenizerConfig(type=kind, max_vocab_size=600)
    too_long = "qz" * MAX_LEARNED_LENGTH
    long_enough = "q" * MAX_LEARNED_LENGTH
    unread = "short words" + " " * CHARACTERS_PER_TOKEN * 64 + "unread"
    texts = [f"hello (see {too_long})/here,{long_enough}", too_long, unread]
    learned_texts = [f"hello (see )/here,{long_enough}", "", "short words"]

    tokenizer, num_long = train_subwords(example_texts() + texts, config, max_seq_len=64)
    expected, num_others = train_subwords(example_texts() + learned_texts, config, max_seq_len=64)

    assert tokenizer.to_str() == expected.to_str()
    assert num_long == 2
    assert num_others == 0


@every_type
def test_only_what_is_in_enough_texts_is_a_token(kind):
    """However often one text has a word, it is unknown or stays in pieces."""
    texts = [*example_texts(), "zqxwvut zqxwvu " * 50, *"zqxwvu"]
    assert _has_part_of("zqx", train_on(*texts, type=kind, min_frequency=1))

    tokenizer = train_on(*texts, type=kind, min_frequency=2)
    assert "order" in tokenizer.get_vocab()
    assert not _has_part_of("zqx", tokenizer)
    assert (UNK_ID in ids_of(tokenizer, "zqxwvu")) == (kind == "word_level")
    assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))


@every_type
def test_texts_of_one_group_count_once(kind):
    """A word in two texts of one customer is no token; they need not be neighbours."""
    texts = ["zqxwvut zqxwvu " * 50, *example_texts(), "zqxwvut zqxwvu " * 50]
    config = TokenizerConfig.model_validate({"type": kind, "min_frequency": 2})
    groups = np.arange(len(texts))

    tokenizer, *_ = train_and_tokenize(texts, config, max_seq_len=64, groups=groups)
    assert _has_part_of("zqx", tokenizer)

    groups[-1] = groups[0]
    tokenizer, *_ = train_and_tokenize(texts, config, max_seq_len=64, groups=groups)
    assert not _has_part_of("zqx", tokenizer)


def _has_part_of(letters: str, tokenizer: Tokenizer) -> bool:
    """Whether a token has two neighbouring letters of these, which are in no other word."""
    pairs = [first + second for first, second in pairwise(letters)]
    return any(pair in token for token in tokenizer.get_vocab() for pair in pairs)


def test_parts_of_clauses_without_spaces_are_tokens_if_they_are_in_enough_texts():
    """No clause is in two texts, but the words in it are."""
    clauses = [f"{character}退款" * 9 for character in "我他你她的是不了人在有这上大来和国地到以"]
    vocabulary = train_on(*clauses, type="bpe", min_frequency=2).get_vocab()

    assert "退款" in vocabulary
    assert not [token for token in vocabulary if "我" in token and len(token) > 1]


@pytest.mark.parametrize(
    ("values", "one", "other", "is_equal"),
    [
        ({"lowercase": True}, "Straße ÉTÉ", "straße été", True),
        ({"lowercase": False}, "Order", "order", False),
        ({"normalization": "nfkc"}, "ﬁne １", "fine 1", True),
        ({"normalization": "nfc"}, "ﬁne", "fine", False),
        ({"normalization": "nfc"}, "caf\u00e9", "cafe\u0301", True),
        ({"normalization": "none"}, "caf\u00e9", "cafe\u0301", False),
        ({"strip_accents": True}, "café Ångström", "cafe angstrom", True),
        ({"strip_accents": True, "normalization": "none"}, "caf\u00e9", "cafe\u0301", True),
        ({"strip_accents": False}, "café", "cafe", False),
    ],
)
def test_normalization_makes_one_word_of_two_or_does_not(values, one, other, is_equal):
    """The config decides this, whichever form of the word was in the training texts."""
    for text, variant in ((one, other), (other, one)):
        tokenizer = train_on(text, **values)
        assert (ids_of(tokenizer, text) == ids_of(tokenizer, variant)) == is_equal
        assert UNK_ID not in ids_of(tokenizer, text)


def assert_equal(found: TokenizedTexts, expected: TokenizedTexts) -> None:
    """Equal in all arrays, with their types."""
    for name in ("words", "word_ids", "offsets", "truncated", "unknown"):
        array = getattr(found, name)
        expected_array = getattr(expected, name)
        assert array.dtype == expected_array.dtype, name
        assert array.tolist() == expected_array.tolist(), name

    assert found.char_ngrams.ngrams.tolist() == expected.char_ngrams.ngrams.tolist()
    assert found.char_ngrams.offsets.tolist() == expected.char_ngrams.offsets.tolist()


@every_type
@pytest.mark.parametrize("chunk", [1, 3, 1024])
def test_texts_tokenized_in_training_are_as_tokenized_afterwards(kind, chunk, monkeypatch):
    """Chunks may have any size; words alone are learned in one pass over the texts."""
    config = TokenizerConfig(type=kind, max_vocab_size=600, min_frequency=2)
    texts = [*example_texts()[:40], "", "zyx " * 100, "naïve 日本 ☃"]
    expected_tokenizer, *_ = train_and_tokenize(texts, config, max_seq_len=8)

    monkeypatch.setattr(lazy_sequences, "CHUNK", chunk)
    given_texts = iter(texts) if kind == "word_level" else texts
    tokenizer, tokenized, _ = train_and_tokenize(given_texts, config, max_seq_len=8)

    assert tokenizer.to_str() == expected_tokenizer.to_str()
    assert_equal(tokenized, tokenize(tokenizer, texts, max_seq_len=8))


def test_words_are_counted_as_far_as_texts_are_kept():
    """A word in the part that is cut off is unknown, even if it is frequent there."""
    num_kept = KEPT_PER_TOKEN * 3
    text = "a " * (num_kept - 2) + "last beyond beyond"

    tokenizer, tokenized, _ = train_and_tokenize(
        [text], TokenizerConfig(min_frequency=1), max_seq_len=3
    )

    assert set(tokenizer.get_vocab()) == {*SPECIAL_TOKENS, "a", "last"}
    assert tokenized.input_ids().tolist() == ids_of(tokenizer, text, max_seq_len=3)
