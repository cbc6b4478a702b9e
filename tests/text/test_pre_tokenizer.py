"""Splitting: the words of a text are those that its tokenizer finds by itself, whatever the text."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tokenizer import train_tokenizer
from tokenizers import Tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.text.tokenizer import token_reader
from encoder_cls.text.tokenizer_training import ArrowWords
from encoder_cls.text.tokens import TokenChunk, TokenReader

ODD_CHARACTERS = st.text(
    st.one_of(
        st.sampled_from(
            "abzZ [](.!?)#▁\t\n\r\0\x01\x1f\x7f\x85\xad\u0301\u0308\u0323\u0345\u05b4\u093f\u0e33\u0e48"
            "我爱กขアｱﾞ가\u1100\u1161\u17b6កမြລ\u200b\u200c\u200d\u200e\u2028\u2060\ufe0f\ufeff\xa0\u3000"
            "🙂👩🏽💻🇩🇪ßİıſǅﬁ½´¨ﷺ𝒜²_’'-\ud800\udc00�"
        ),
        st.characters(),
    ),
    max_size=24,
)


@functools.cache
def odd_tokenizer(
    kind: str, normalization: str = "nfkc", strip_accents: bool = False, lowercase: bool = True
) -> Tokenizer:
    """Knows some of the words of odd texts."""
    config = TokenizerConfig(
        type=kind,
        normalization=normalization,
        strip_accents=strip_accents,
        lowercase=lowercase,
        max_vocab_size=200,
    )
    return train_tokenizer(["ab a z é 爱 ก zz 🙂 ß [pad] ff . ' �", "# ▁ ab"], config)


def both_readers(tokenizer: Tokenizer) -> tuple[TokenReader, TokenReader]:
    """The one of few texts, and the one of many."""
    return token_reader(tokenizer), ArrowWords(tokenizer).read


def strings(found: TokenChunk) -> list[list[str]]:
    """The tokens of each text."""
    texts = np.split(found.indices, np.cumsum(found.lengths)[:-1]) if len(found.lengths) else []
    return [[found.distinct[index] for index in text] for text in texts]


def without_surrogates(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n", []),
        ("zzz\0qqq", ["zzz", "\0", "qqq"]),
        ("zzz\u200bqqq \ufeff", ["zzz", "\u200b", "qqq", "\ufeff"]),
        ("ze\u0301ro cafe\u0301", ["zéro", "café"]),
        ("x\u0301\u0302\u0323 known", ["x\u0323\u0301\u0302", "known"]),
        ("我爱 known你", ["我", "爱", "known", "你"]),
        ("กข zz", ["ก", "ข", "zz"]),
        ("カナﾊﾟ", ["カ", "ナ", "パ"]),
        ("น้ำ ที่นี่ คืนเงิน", ["น้ํา", "ที่", "นี่", "คื", "น", "เ", "งิ", "น"]),
        ("ខ្មែរ a", ["ខ្មែ", "រ", "a"]),
        ("ခက္ခaမြန်", ["ခ", "က္ခ", "a", "မြ", "န်"]),
        ("ສິ່ງ", ["ສິ່", "ງ"]),
        ("🙂👍🏽 zz🙂", ["🙂", "👍🏽", "zz", "🙂"]),
        (
            "👩\u200d💻!!❤\ufe0f🇩🇪🇫🇷? z\u200dz",
            ["👩\u200d💻", "!!", "❤\ufe0f", "🇩🇪", "🇫🇷", "?", "z\u200dz"],
        ),
        ("ＺＺ ﬁｆｔｙ ½", ["zz", "fifty", "1", "⁄", "2"]),
        ("İZ STRASSE ß", ["i̇z", "strasse", "ß"]),
        ("a\u2028b\u00a0c\u3000known\x85d", ["a", "b", "c", "known", "d"]),
        ("\ud800zz \udfff", ["�", "zz", "�"]),
        ("!!?? known...zz", ["!!??", "known", "...", "zz"]),
        ("[PAD] a [CLS]", ["[", "pad", "]", "a", "[", "cls", "]"]),
    ],
    ids=lambda value: ascii(value)[:24] if isinstance(value, str) else "",
)
def test_words_of_any_script(text, words):
    """Control characters, marks, unspaced scripts, emoji, joiners, widths, half surrogates, special tokens as text."""
    for read in both_readers(odd_tokenizer("word_level")):
        found = strings(read([text, "a", text], 99))
        assert found == [["[CLS]", *words], ["[CLS]", "a"], ["[CLS]", *words]]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    texts=st.lists(
        ODD_CHARACTERS | st.text(st.characters(max_codepoint=127), max_size=24), max_size=4
    ),
    normalization=st.sampled_from(["none", "nfc", "nfkc"]),
    strip_accents=st.booleans(),
    lowercase=st.booleans(),
)
def test_words_of_any_text_are_those_of_the_library(texts, normalization, strip_accents, lowercase):
    """One by one or by Arrow's kernels: what normalizer and pre-tokenizer find, and each has the tokenizer's id."""
    tokenizer = odd_tokenizer("word_level", normalization, strip_accents, lowercase)
    one_by_one, by_arrow = (read(texts, 9) for read in both_readers(tokenizer))
    assert one_by_one.distinct == by_arrow.distinct
    assert one_by_one.indices.tolist() == by_arrow.indices.tolist()
    assert one_by_one.lengths.tolist() == by_arrow.lengths.tolist()
    for found in (one_by_one, by_arrow):
        assert (found.indices.dtype, found.lengths.dtype) == (np.int32, np.int64)
    for text, tokens in zip(texts, strings(token_reader(tokenizer)(texts, 99)), strict=True):
        normal = tokenizer.normalizer.normalize_str(without_surrogates(text))
        assert tokens == [
            "[CLS]",
            *(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)),
        ]
        ids = [tokenizer.token_to_id(token) for token in tokens]
        assert [1 if number is None else number for number in ids] == tokenizer.encode(
            without_surrogates(text)
        ).ids


@pytest.mark.parametrize("kind", ["word_piece", "bpe", "unigram"])
@settings(max_examples=120, deadline=None, derandomize=True)
@given(texts=st.lists(ODD_CHARACTERS, min_size=1, max_size=4))
def test_pieces_of_words_are_those_of_the_vocabulary(kind, texts):
    """Each as the vocabulary writes it, `[UNK]` where it has none."""
    tokenizer = odd_tokenizer(kind)
    expected = [tokenizer.encode(without_surrogates(text)).ids for text in texts]
    found = strings(token_reader(tokenizer)(texts, 99))
    assert strings(token_reader(tokenizer)(texts, 2)) == [tokens[:2] for tokens in found]
    assert found == [[tokenizer.id_to_token(number) for number in ids] for ids in expected]
    assert all(
        tokens[0] == "[CLS]" and not {"[CLS]", "[PAD]", "[MASK]"} & set(tokens[1:])
        for tokens in found
    )
