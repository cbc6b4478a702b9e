"""The tokenizer: the same data gives the same bytes, `[CLS]` comes first, and no text can do what it should not."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.tokenizer import train_tokenizer
from tokenizers import Tokenizer, trainers

import encoder_cls
from encoder_cls.config.schema import DataConfig, TokenizerConfig
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.errors import ConfigError
from encoder_cls.system import columns
from encoder_cls.text.tokenizer import (
    UNSPACED,
    parse_tokenizer,
    split_by_tokenizer,
    token_spans,
    tokenize,
)
from encoder_cls.text.tokenizer_training import train_and_tokenize, train_subwords
from encoder_cls.text.tokens import (
    CHARACTERS_PER_TOKEN,
    CLS_ID,
    KEPT_PER_TOKEN,
    LONGEST_LEARNED,
    MASK_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    UNK_ID,
)

TYPES = ["word_level", "word_piece", "bpe", "unigram"]
ODD_TEXTS = [
    "",
    " ",
    "where is my order",
    "[PAD]",
    "\0",
    "\ud800",
    "é" * 99,
    "I'd say: NO!!",
    "日本語のテスト",
    "🙂",
    "zzz qqq",
]
every_type = pytest.mark.parametrize("kind", TYPES)


@functools.cache
def bundled_texts() -> list[str]:
    return list(load_dataset(DataConfig(train="example:train")).train.texts)


@functools.cache
def trained(kind: str) -> Tokenizer:
    """A tokenizer of the bundled texts. Not to be changed."""
    return train_tokenizer(bundled_texts(), TokenizerConfig(type=kind, max_vocab_size=600))


def train_on(*texts: str, **values: object) -> Tokenizer:
    return train_tokenizer(texts, TokenizerConfig.model_validate(values))


def ids_of(tokenizer: Tokenizer, text: str, max_seq_len: int = 64) -> list[int]:
    return tokenize(tokenizer, [text], max_seq_len=max_seq_len).input_ids().tolist()


PROGRAM = """
import hashlib, sys
from encoder_cls.config.schema import DataConfig, TokenizerConfig
from encoder_cls.data.load_dataset import load_dataset
from encoder_cls.text.tokenizer_training import train_and_tokenize
texts = load_dataset(DataConfig(train="example:train")).train.texts
for kind in sys.argv[1:]:
    tokenizer, *_ = train_and_tokenize(texts, TokenizerConfig(type=kind, max_vocab_size=600), max_seq_len=1 << 20)
    print(hashlib.sha256(tokenizer.to_str().encode()).hexdigest())
"""


def test_the_same_texts_give_the_same_bytes_in_another_process():
    """Another hash seed changes nothing."""
    package = str(Path(encoder_cls.__file__).parents[1])
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": package}
    arguments = [sys.executable, "-c", PROGRAM, *TYPES]
    elsewhere = subprocess.run(
        arguments, env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert elsewhere.split() == [
        hashlib.sha256(trained(kind).to_str().encode()).hexdigest() for kind in TYPES
    ]


@every_type
def test_ids_have_no_gaps_and_start_with_the_special_tokens(kind):
    """`[PAD]` 0, `[UNK]` 1, `[CLS]` 2, `[MASK]` 3: model and batches rely on it; max_vocab_size counts them."""
    vocabulary = trained(kind).get_vocab()
    assert sorted(vocabulary.values()) == list(range(600))
    assert [vocabulary[token] for token in ("[PAD]", "[UNK]", "[CLS]", "[MASK]")] == [0, 1, 2, 3]
    assert (PAD_ID, UNK_ID, CLS_ID, MASK_ID) == (0, 1, 2, 3)


@pytest.mark.parametrize(("size", "min_frequency"), [(16, 1), (30_000, 1), (30_000, 2)])
def test_words_are_those_that_the_library_finds(size, min_frequency):
    """The whole file is the one that the tokenizers library's own trainer makes; its order of equals, too."""
    texts = [text for text in ODD_TEXTS if text.isprintable()] + bundled_texts()
    found = train_on(*texts, max_vocab_size=size, min_frequency=min_frequency)
    expected = parse_tokenizer(found.to_str())
    trainer = trainers.WordLevelTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    expected.train_from_iterator(texts, trainer)
    assert found.to_str() == expected.to_str()


@every_type
def test_half_surrogates_are_learnt_as_the_replacement_character(kind):
    """Texts that no file can hold train a tokenizer all the same."""
    broken, replaced = (
        train_on(f"a {half} b", f"c {half}", type=kind) for half in ("\ud800", "\ufffd")
    )
    assert broken.to_str() == replaced.to_str()
    assert broken.token_to_id("\ufffd") is not None


def test_word_piece_continues_words_with_their_characters_alone():
    """Nothing of `[CLS]`, which begins each sequence, becomes a token of its own."""
    assert set(train_on("ab abc", type="word_piece").get_vocab()) >= {"a", "##b", "##c"}
    assert not {"##C", "##[", "##]"} & set(train_on("ab abc", type="word_piece").get_vocab())


@pytest.mark.parametrize("kind", TYPES[1:])
def test_a_vocabulary_too_small_for_the_characters_is_refused(kind):
    """A sub-word model begins with all characters; a limit below that is a mistake in the config, which is named."""
    with pytest.raises(ConfigError, match="max_vocab_size"):
        train_tokenizer(bundled_texts(), TokenizerConfig(type=kind, max_vocab_size=16))


@pytest.mark.parametrize("kind", TYPES[1:])
def test_sub_word_models_learn_nothing_from_long_words_and_from_what_is_not_read(kind):
    """An attachment, links beside it or not, and what is behind the last character that is read, change no byte."""
    config, too_long = TokenizerConfig(type=kind, max_vocab_size=600), "qz" * LONGEST_LEARNED
    unread = "short words" + " " * CHARACTERS_PER_TOKEN * 64 + "unread"
    spoilt = [
        *bundled_texts(),
        f"hello (see {too_long})/here,{'q' * LONGEST_LEARNED}",
        f"{too_long}",
        unread,
    ]
    learned = [*bundled_texts(), f"hello (see )/here,{'q' * LONGEST_LEARNED}", "", "short words"]
    tokenizer, long_words = train_subwords(spoilt, config, max_seq_len=64)
    expected, none = train_subwords(learned, config, max_seq_len=64)
    assert (tokenizer.to_str(), long_words, none) == (expected.to_str(), 2, 0)


@pytest.mark.parametrize("kind", ["word_level", "word_piece", "bpe"])
def test_what_is_rarer_than_min_frequency_is_no_token(kind):
    """Seen twice, a word is a token; seen once, it is unknown, or stays in pieces."""
    # All characters of `rare` at the beginning of a word and inside one.
    texts = [
        "often often rare",
        "ftera",
    ]
    assert train_on(*texts, type=kind, min_frequency=1).token_to_id("rare") is not None
    tokenizer = train_on(*texts, type=kind, min_frequency=2)
    assert tokenizer.token_to_id("often") is not None
    assert tokenizer.token_to_id("rare") is None
    assert (UNK_ID in ids_of(tokenizer, "rare")) == (kind == "word_level")


@pytest.mark.parametrize(
    ("values", "one", "other", "equal"),
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
def test_normalization_makes_one_word_of_two_or_does_not(values, one, other, equal):
    """As the config says, and whichever of the two was in the training texts."""
    for text, variant in ((one, other), (other, one)):
        tokenizer = train_on(text, **values)
        assert (ids_of(tokenizer, text) == ids_of(tokenizer, variant)) == equal
        assert UNK_ID not in ids_of(tokenizer, text)


@every_type
@pytest.mark.parametrize("lowercase", [True, False])
def test_typed_special_tokens_are_ordinary_words(kind, lowercase):
    """Even where training texts are full of them, and after reading the tokenizer from a file."""
    text = "[PAD] x[CLS] [MASK][UNK] [pad]"
    tokenizer = train_on(text, text, "a", *SPECIAL_TOKENS, type=kind, lowercase=lowercase)
    for same in (tokenizer, parse_tokenizer(tokenizer.to_str())):
        first, *others = ids_of(same, text)
        assert first == CLS_ID
        assert len(others) > 5
        assert not set(range(4)) & set(others)


@every_type
@pytest.mark.parametrize(
    "text",
    ["a" * 10_000_000, "a " * 5_000_000, "ﷺ" * 3_000_000],
    ids=["word", "words", "expanding"],
)
def test_ten_megabytes_cost_no_more_than_a_page(kind, text):
    """One endless word or endless words take well under two seconds of a processor."""
    start = time.process_time()
    result = tokenize(trained(kind), [text], max_seq_len=256)
    assert time.process_time() - start < 2
    assert result.truncated.tolist() == [True]
    assert result.lengths[0] <= 256


@every_type
@pytest.mark.parametrize("chunk", [1, 3, 1024])
def test_texts_tokenized_in_training_are_as_tokenized_afterwards(kind, chunk, monkeypatch):
    """In chunks of any size, from an iterable that can be read once where one pass is enough."""
    config = TokenizerConfig(type=kind, max_vocab_size=600, min_frequency=2)
    texts = [*bundled_texts()[:40], "", "zyx " * 100, "naïve 日本 ☃"]
    expected_bytes = train_tokenizer(texts, config).to_str()
    monkeypatch.setattr(columns, "CHUNK", chunk)
    given = iter(texts) if kind == "word_level" else texts
    trained, found, _ = train_and_tokenize(given, config, max_seq_len=8)
    assert trained.to_str() == expected_bytes
    expected = tokenize(trained, texts, max_seq_len=8)
    for name in ("words", "word_ids", "offsets", "truncated", "unknown"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist()), name
    assert found.char_ngrams.ngrams.tolist() == expected.char_ngrams.ngrams.tolist()
    assert found.char_ngrams.offsets.tolist() == expected.char_ngrams.offsets.tolist()


def test_words_are_counted_as_far_as_texts_are_kept():
    """What is cut off is not known, however often it is there."""
    most = KEPT_PER_TOKEN * 3
    texts = ["a " * (most - 2) + "last beyond beyond"]
    trained, found, _ = train_and_tokenize(texts, TokenizerConfig(), max_seq_len=3)
    assert set(trained.get_vocab()) == {*SPECIAL_TOKENS, "a", "last"}
    assert found.input_ids().tolist() == ids_of(trained, texts[0], max_seq_len=3)


@every_type
def test_a_tokenizer_read_from_its_file_gives_the_same_tokens(kind):
    """Compact or pretty-printed, as it is saved; written again, it is the same file."""
    texts = [*ODD_TEXTS, *bundled_texts()[:50]]
    expected = tokenize(trained(kind), texts, max_seq_len=32)
    for content in (trained(kind).to_str(), trained(kind).to_str(pretty=True)):
        read = parse_tokenizer(content)
        assert read.to_str() == trained(kind).to_str()
        found = tokenize(read, texts, max_seq_len=32)
        assert np.array_equal(found.input_ids(), expected.input_ids())
        assert np.array_equal(found.offsets, expected.offsets)


IDS = {token: number for number, token in enumerate([*SPECIAL_TOKENS, "a", "b", "c"])}


def word_level(vocabulary: dict[str, int]) -> dict[str, object]:
    return {
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
        "added_tokens": [],
    }


SPLIT = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
FOREIGN = "no tokenizer of encoder-cls does"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            (content, "not a tokenizer")
            for content in ("", "null", "{}", "\ud800", "[" * 9999, '{"model": {}}')
        ),
        (
            word_level({"a": 0, "[PAD]": 1, "[UNK]": 2, "[CLS]": 3, "[MASK]": 4}),
            "its first tokens are not",
        ),
        (word_level({"a": 0}), "its first tokens are not"),
        *(
            (word_level(IDS | {"c": number}), "token ids are not 0, 1, 2")
            for number in (4, 99, 2**32 - 1)
        ),
        ({"pre_tokenizer": SPLIT}, FOREIGN),
        ({"pre_tokenizer": None}, FOREIGN),
        (
            {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}},
            FOREIGN,
        ),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "Prepend", "prepend": "x"}],
                }
            },
            FOREIGN,
        ),
    ],
    ids=range(15),
)
def test_a_file_that_is_no_tokenizer_of_ours_is_refused(change, message):
    """Its ids would mean something else to the model; a regular expression could take for ever on a short text."""
    content = (
        change
        if isinstance(change, str)
        else json.dumps(json.loads(train_on("a b c").to_str()) | change)
    )
    with pytest.raises(ValueError, match=message):
        parse_tokenizer(content)


@pytest.mark.parametrize("kind", ["word_level", "word_piece"])
def test_a_tokenizer_that_splits_by_code_points_is_read(kind):
    """As earlier models have it: vowel signs apart, runs of emoji in one."""
    by_code_points = {
        "type": "Split",
        "pattern": {"Regex": f"[{UNSPACED}]"},
        "behavior": "Isolated",
        "invert": False,
    }
    earlier = {"type": "Sequence", "pretokenizers": [by_code_points, {"type": "Whitespace"}]}
    tokenizer = json.loads(train_on("a b", type=kind).to_str()) | {"pre_tokenizer": earlier}
    read = parse_tokenizer(json.dumps(tokenizer))
    assert split_by_tokenizer(read, "ที่ 🙂🙂") == ["ท", "\u0e35", "\u0e48", "🙂🙂"]
    config = TokenizerConfig(type=kind)
    continued, *_ = train_and_tokenize(["ที่"], config, max_seq_len=8, base=read)
    assert split_by_tokenizer(continued, "ที่") == ["ท", "\u0e35", "\u0e48"]


PADDING = {
    "strategy": {"Fixed": 8},
    "direction": "Right",
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "[PAD]",
}
TRUNCATION = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
TEMPLATE = {"type": "BertProcessing", "sep": ["[SEP]", 77], "cls": ["[CLS]", 99]}


@pytest.mark.parametrize(
    "change",
    [
        {"post_processor": None},
        {"post_processor": TEMPLATE},
        {"padding": PADDING},
        {"truncation": TRUNCATION},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_foreign_tokenizer_cannot_change_what_a_sequence_is(change):
    """Whatever template, padding or limit a file sets: refused, or `[CLS]` and then all tokens as ever."""
    tokenizer = train_on("a b c")
    try:
        changed = parse_tokenizer(json.dumps(json.loads(tokenizer.to_str()) | change))
    except ValueError:
        return
    assert [ids_of(changed, text) for text in ("a b c", "")] == [
        ids_of(tokenizer, text) for text in ("a b c", "")
    ]


def test_spans_are_the_places_of_tokens_in_the_text_as_given():
    """Also after surrogates and characters beyond the basic plane."""
    text = "\U0001f600 rain\ud83d\ude00 snow \ud83d"
    spans = token_spans(trained("word_level"), text, max_seq_len=16)
    assert [text[span.start : span.end] for span in spans] == [
        "\U0001f600",
        "rain",
        "\ud83d\ude00",
        "snow",
        "\ud83d",
    ]
