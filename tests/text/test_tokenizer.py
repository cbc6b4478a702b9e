"""The tokenizer: `[CLS]` comes first, no text makes special tokens, foreign files are refused."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import numpy as np
import pytest
from support.tokenizer import example_texts, example_tokenizer, train_tokenizer
from tokenizers import Tokenizer

import encoder_cls
from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.text import tokenizer as tokenizer_module
from encoder_cls.text.tokenizer import (
    count_tokens,
    parse_tokenizer,
    token_spans,
    tokenize,
)
from encoder_cls.text.tokens import CLS_ID, SPECIAL_TOKENS

every_type = pytest.mark.parametrize("kind", ["word_level", "word_piece", "bpe", "unigram"])


def train_on(*texts: str, **values: object) -> Tokenizer:
    return train_tokenizer(texts, TokenizerConfig.model_validate({"min_frequency": 1, **values}))


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenize(tokenizer, [text], max_seq_len=64).input_ids().tolist()


@every_type
@pytest.mark.parametrize("lowercase", [True, False])
def test_typed_special_tokens_are_ordinary_words(kind, lowercase):
    """This holds even if training texts are full of them, and for a tokenizer from a file."""
    text = "[PAD] x[CLS] [MASK][UNK] [pad]"
    tokenizer = train_on(text, text, "a", *SPECIAL_TOKENS, type=kind, lowercase=lowercase)

    for same_tokenizer in (tokenizer, parse_tokenizer(tokenizer.to_str())):
        first, *others = ids_of(same_tokenizer, text)
        assert first == CLS_ID
        assert len(others) > 5
        assert not set(others) & set(range(len(SPECIAL_TOKENS)))


@pytest.mark.parametrize("not_texts", ["my parcel", {"text": "my parcel"}], ids=type)
def test_a_text_alone_or_a_table_is_refused(not_texts):
    """Python would tokenize the letters of the text, or the name of the column."""
    with pytest.raises(TypeError, match="train_tokenizer takes"):
        encoder_cls.train_tokenizer(not_texts)
    with pytest.raises(TypeError, match="tokenize takes"):
        encoder_cls.tokenize(train_on("a"), not_texts, max_seq_len=8)


@every_type
@pytest.mark.parametrize(
    "text",
    ["a" * 10_000_000, "a " * 5_000_000, "ﷺ" * 3_000_000],
    ids=["word", "words", "expanding"],
)
def test_ten_megabytes_cost_no_more_than_a_page(kind, text):
    """One endless word or endless words take well under two seconds of a processor."""
    tokenizer = example_tokenizer(kind)

    start = time.process_time()
    tokenized = tokenize(tokenizer, [text], max_seq_len=256)
    assert time.process_time() - start < 2

    assert tokenized.truncated.tolist() == [True]
    assert tokenized.lengths[0] <= 256


def test_spans_are_the_places_of_tokens_in_the_text_as_given():
    """This also holds after surrogates and characters beyond the basic plane."""
    text = "\U0001f600 rain\ud83d\ude00 snow \ud83d"

    spans = token_spans(example_tokenizer("word_level"), text, max_seq_len=16)

    assert [text[span.start : span.end] for span in spans] == [
        "\U0001f600",
        "rain",
        "\ud83d\ude00",
        "snow",
        "\ud83d",
    ]


@pytest.mark.parametrize(
    ("characters", "settings"),
    [
        # A consonant of a Hangul syllable, an accent, a mark after a no-break space.
        (["\u1112\u1161\u11ab", " ", "cafe\u0301", " ", "ok", "\xa0\u0301"], {}),
        # Half-width kana, whose marks normalization makes; a Burmese vowel sign.
        (["\uff8a\uff9f", "\uff7f", " ", "\u1019\u103c", "\u1014\u103a", "\u1019\u102c"], {}),
        # Marks that normalization removes.
        (["हिन्दी", " ", "❤\ufe0f", " ", "cafe\u0301"], {"strip_accents": True}),
        (["pass\u00adword", " \u200f", "ok", "\u200f"], {}),
    ],
    ids=["marks", "marks of scripts", "accents", "invisible"],
)
def test_spans_cover_whole_characters(characters, settings):
    """A mark belongs to the character before it, also if normalization joins or removes it."""
    text = "".join(characters)
    tokenizer = train_on(text, **settings)

    spans = token_spans(tokenizer, text, max_seq_len=16)

    words = [character for character in characters if character.strip(" \u200f")]
    found = [text[span.start : span.end] for span in spans]
    # Two tokens of one character have the same span.
    assert list(dict.fromkeys(found)) == words


# A Persian word whose non-joiner keeps letters apart that would join.
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648"
SEEN_ALIKE = {
    "soft hyphens": f"pass\u00adword Stra\u00dfe {PERSIAN}",
    "spaces without width": f"pass\u200bword\u200b Stra\ufeff\u00dfe {PERSIAN}",
    "marks of direction": f"\u202apassword\u202c \u200fStra\u00dfe\u200e \u2067{PERSIAN}",
    "joiners": f"pass\u200cword\u200d Stra\u200d\u00dfe \u0645\u06cc\u200c{PERSIAN[2:]}\u200c",
    "selectors and tags": f"pass\ufe0fword Stra\ufe00\u00dfe\U000e0061\U000e007f {PERSIAN}",
}


@every_type
def test_characters_that_cannot_be_seen_change_no_token(kind):
    """Not even where nothing else is normalized."""
    plain = f"password Stra\u00dfe {PERSIAN}"
    tokenizer = train_on(plain, "pass word", type=kind, normalization="none")
    for name, text in SEEN_ALIKE.items():
        assert ids_of(tokenizer, text) == ids_of(tokenizer, plain), name


@pytest.mark.parametrize(
    "text",
    [
        PERSIAN,
        "\u0915\u094d\u200d\u0937 \u0915\u094d\u200c\u0937 \u0dc1\u0dca\u200d\u0dbb\u0dd3",
        "\u1820\u180e\u1821\u180b",
        "👩🏽\u200d💻 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3",
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    ],
    ids=["Persian", "Indic", "Mongolian", "emoji", "flag of Scotland"],
)
def test_joiners_and_selectors_are_kept_where_they_have_a_meaning(text):
    tokenizer = train_on(text, normalization="none")
    words = [tokenizer.id_to_token(token_id) for token_id in ids_of(tokenizer, text)[1:]]
    assert "".join(words) == text.replace(" ", "")


def test_tokens_are_counted_up_to_a_number_of_characters(monkeypatch):
    """The count includes `[CLS]`; it is exact if all of the text was read."""
    monkeypatch.setattr(tokenizer_module, "MAX_COUNTED", 3)
    tokenizer = train_on("a b c")

    assert count_tokens(tokenizer, "a b") == (3, True)
    assert count_tokens(tokenizer, "a b c") == (3, False)


# Files


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


@every_type
@pytest.mark.parametrize("is_pretty", [False, True])
def test_a_tokenizer_read_from_its_file_gives_the_same_tokens(kind, is_pretty):
    """The tokenizer that was read is written to the same file again."""
    texts = ODD_TEXTS + example_texts()[:50]
    tokenizer = example_tokenizer(kind)
    expected = tokenize(tokenizer, texts, max_seq_len=32)

    read = parse_tokenizer(tokenizer.to_str(pretty=is_pretty))
    tokenized = tokenize(read, texts, max_seq_len=32)

    assert read.to_str() == tokenizer.to_str()
    assert np.array_equal(tokenized.input_ids(), expected.input_ids())
    assert np.array_equal(tokenized.offsets, expected.offsets)


def with_changes(tokenizer: Tokenizer, changes: Mapping[str, object]) -> str:
    """The JSON of a tokenizer with other values for some keys."""
    return json.dumps(json.loads(tokenizer.to_str()) | changes)


@pytest.mark.parametrize("content", ["", "null", "{}", "\ud800", "[" * 9999, '{"model": {}}'])
def test_a_file_that_is_no_tokenizer_is_refused(content):
    with pytest.raises(ValueError, match="not a tokenizer"):
        parse_tokenizer(content)


@pytest.mark.parametrize("vocabulary", [["a"], ["a", "[PAD]", "[UNK]", "[CLS]", "[MASK]"]])
def test_a_vocabulary_that_does_not_begin_with_our_special_tokens_is_refused(vocabulary):
    """The ids would have another meaning for the model."""
    ids = {token: number for number, token in enumerate(vocabulary)}
    with pytest.raises(ValueError, match="its first tokens are not"):
        parse_tokenizer(with_word_level_vocabulary(ids))


@pytest.mark.parametrize("number", [4, 99, 2**31, 2**32 - 1])
def test_ids_that_are_doubled_or_have_gaps_are_refused(number, capfd):
    """The library would print the ids of a gap when it writes the tokenizer, or abort."""
    tokens = [*SPECIAL_TOKENS, "a", "b"]
    ids = {token: number for number, token in enumerate(tokens)}
    ids["c"] = number
    with pytest.raises(ValueError, match="token ids are not 0, 1, 2"):
        parse_tokenizer(with_word_level_vocabulary(ids))
    assert capfd.readouterr().err == ""


def with_word_level_vocabulary(ids: dict[str, int]) -> str:
    """The JSON of a tokenizer with these ids of words."""
    model = {"type": "WordLevel", "vocab": ids, "unk_token": "[UNK]"}
    return with_changes(train_on("a b c"), {"model": model, "added_tokens": []})


# A regular expression that takes for ever on some short texts.
SLOW_PATTERN = {"Regex": "(a+)+$"}


@pytest.mark.parametrize(
    "changes",
    [
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": SLOW_PATTERN,
                "behavior": "Isolated",
                "invert": False,
            }
        },
        {"pre_tokenizer": None},
        {"normalizer": {"type": "Replace", "pattern": SLOW_PATTERN, "content": ""}},
        {
            "normalizer": {
                "type": "Sequence",
                "normalizers": [{"type": "Prepend", "prepend": "x"}],
            }
        },
    ],
    ids=["Split", "none", "Replace", "Prepend"],
)
def test_other_steps_of_splitting_and_normalizing_are_refused(changes):
    content = with_changes(train_on("a b c"), changes)
    with pytest.raises(ValueError, match="no tokenizer of encoder-cls does"):
        parse_tokenizer(content)


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
    "changes",
    [
        {"post_processor": None},
        {"post_processor": TEMPLATE},
        {"padding": PADDING},
        {"truncation": TRUNCATION},
    ],
    ids=["no template", "template", "padding", "truncation"],
)
def test_a_foreign_tokenizer_cannot_change_what_a_sequence_is(changes):
    """The file is refused, or a sequence is `[CLS]` and then all tokens of the text."""
    tokenizer = train_on("a b c")
    try:
        changed = parse_tokenizer(with_changes(tokenizer, changes))
    except ValueError:
        return

    for text in ("a b c", ""):
        assert ids_of(changed, text) == ids_of(tokenizer, text)
