"""Both readers of tokens find the words that the `tokenizers` library finds."""

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
from encoder_cls.text.tokens import UNK_ID, TokenChunk, TokenReader

ODD_TEXTS = st.text(
    st.one_of(
        st.sampled_from(
            "abzZ [](.!?)#▁\t\n\r\0\x01\x1f\x7f\x85\xad"
            "\u0301\u0308\u0323\u0345\u05b4\u093f\u0e33\u0e48"
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
    """A tokenizer that knows some of the words of odd texts."""
    config = TokenizerConfig(
        type=kind,
        normalization=normalization,
        strip_accents=strip_accents,
        lowercase=lowercase,
        max_vocab_size=200,
    )
    return train_tokenizer(["ab a z é 爱 ก zz 🙂 ß [pad] ff . ' �", "# ▁ ab"], config)


def both_readers(tokenizer: Tokenizer) -> tuple[TokenReader, TokenReader]:
    """The reader for few texts, and the reader for many texts."""
    return token_reader(tokenizer), ArrowWords(tokenizer).read


def strings(found: TokenChunk) -> list[list[str]]:
    """The tokens of each text."""
    tokens = [found.distinct[index] for index in found.indices]
    texts_tokens = []
    for length in found.lengths:
        texts_tokens.append(tokens[:length])
        tokens = tokens[length:]
    return texts_tokens


def without_surrogates(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def short_name(value: object) -> str:
    """The name of a case: the text in ASCII."""
    if isinstance(value, str):
        return ascii(value)[:24]
    return ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n", []),
        ("zzz\0qqq", ["zzz", "\0", "qqq"]),
        ("zz\u00adz\u200bqqq \ufeff", ["zzzqqq"]),
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
            "👩\u200d💻!!❤\ufe0f🇩🇪🇫🇷? z\u200dz می\u200cخو",
            ["👩\u200d💻", "!!", "❤\ufe0f", "🇩🇪", "🇫🇷", "?", "zz", "می\u200cخو"],
        ),
        ("ＺＺ ﬁｆｔｙ ½", ["zz", "fifty", "1", "⁄", "2"]),
        ("İZ STRASSE ß", ["i̇z", "strasse", "ß"]),
        ("a\u2028b\u00a0c\u3000known\x85d", ["a", "b", "c", "known", "d"]),
        ("\ud800zz \udfff", ["�", "zz", "�"]),
        ("!!?? known...zz", ["!!??", "known", "...", "zz"]),
        ("[PAD] a [CLS]", ["[", "pad", "]", "a", "[", "cls", "]"]),
    ],
    ids=short_name,
)
def test_words_of_any_script(text, words):
    """Both readers find the expected words, also in a text that occurs twice."""
    for read in both_readers(odd_tokenizer("word_level")):
        found = strings(read([text, "a", text], 99))
        assert found == [["[CLS]", *words], ["[CLS]", "a"], ["[CLS]", *words]]


ASCII_TEXTS = st.text(st.characters(max_codepoint=127), max_size=24)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    texts=st.lists(ODD_TEXTS | ASCII_TEXTS, max_size=4),
    normalization=st.sampled_from(["none", "nfc", "nfkc"]),
    strip_accents=st.booleans(),
    lowercase=st.booleans(),
)
def test_words_of_any_text_are_those_of_the_library(texts, normalization, strip_accents, lowercase):
    """Both readers find the words and ids that the `tokenizers` library finds."""
    tokenizer = odd_tokenizer("word_level", normalization, strip_accents, lowercase)
    read_few, read_many = both_readers(tokenizer)

    few = read_few(texts, 9)
    many = read_many(texts, 9)
    assert few.distinct == many.distinct
    assert few.indices.tolist() == many.indices.tolist()
    assert few.lengths.tolist() == many.lengths.tolist()
    for found in (few, many):
        assert found.indices.dtype == np.int32
        assert found.lengths.dtype == np.int64

    for text, tokens in zip(texts, strings(read_few(texts, 99)), strict=True):
        readable = without_surrogates(text)
        normalized = tokenizer.normalizer.normalize_str(readable)
        words = tokenizer.pre_tokenizer.pre_tokenize_str(normalized)
        assert tokens == ["[CLS]"] + [word for word, _ in words]

        vocabulary = tokenizer.get_vocab()
        ids = [vocabulary.get(token, UNK_ID) for token in tokens]
        assert ids == tokenizer.encode(readable).ids


@pytest.mark.parametrize("kind", ["word_piece", "bpe", "unigram"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(texts=st.lists(ODD_TEXTS, min_size=1, max_size=4))
def test_pieces_of_words_are_those_of_the_vocabulary(kind, texts):
    """Each piece is an entry of the vocabulary, or `[UNK]` if there is none."""
    tokenizer = odd_tokenizer(kind)
    read = token_reader(tokenizer)

    found = strings(read(texts, 99))
    for text, tokens in zip(texts, found, strict=True):
        ids = tokenizer.encode(without_surrogates(text)).ids
        assert tokens == [tokenizer.id_to_token(token_id) for token_id in ids]
        assert tokens[0] == "[CLS]"
        assert not {"[CLS]", "[PAD]", "[MASK]"} & set(tokens[1:])

    assert strings(read(texts, 2)) == [tokens[:2] for tokens in found]
