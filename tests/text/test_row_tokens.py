"""Rows of several columns as texts, and the tokens of their features and fields."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.tokenizer import train_tokenizer

from encoder_cls.config.schema import TokenizerConfig
from encoder_cls.system.row_text import readable, row_parts, row_text, without_separators
from encoder_cls.text.row_tokens import feature_name, kind_of_token, row_form
from encoder_cls.text.tokenizer import TYPES, parse_tokenizer, token_spans, tokenize
from encoder_cls.text.tokens import FEATURE, WORD


def row(text: str, *, title: str | None = None, **features: object) -> str:
    fields = [("body", text)]
    if title is not None:
        fields.insert(0, ("title", title))
    return row_text(fields, features)


# The sizes are 0 to 99; the channel "fax" is in a single row.
ROWS = [
    row(f"body {'long ' * (size % 3)}text", title="A title", channel=channel, size=size)
    for size, channel in enumerate(["fax", *["email", "phone", None] * 33])
]


def tokens_of(tokenizer, text: str) -> list[str]:
    """The tokens of a text, those of features as a person reads them."""
    ids = tokenize(tokenizer, [text], max_seq_len=64).input_ids().tolist()
    tokens = [tokenizer.id_to_token(token_id) for token_id in ids]
    return [feature_name(token) if kind_of_token(token) == FEATURE else token for token in tokens]


def test_rows_are_read_as_they_were_written():
    written = row("the\x1ebody", title="a\x1f title", channel="e\x1dmail", size=37)

    parts = row_parts(written)

    assert parts.features == {"channel": "e mail", "size": "37"}
    assert parts.fields == [("title", "a  title"), ("body", "the body")]
    assert readable(written) == "a  title the body [channel=e mail, size=37]"
    assert readable(row("alone", channel=None)) == "alone"
    assert row_text([("text", "as it is \x1e")], {}) == "as it is \x1e"


@pytest.mark.parametrize(
    "values",
    [
        ["37", "37.0", 37, 37.0, np.int64(37), np.float32(37), " 37 "],
        [True, "true", "TRUE", "True", np.bool_(True)],
        [None, "", " ", float("nan"), np.nan],
        ["007"],
        [0.1, "0.1"],
    ],
)
def test_equal_values_of_all_formats_are_one_value(values):
    assert len({row("text", feature=value) for value in values}) == 1


@pytest.mark.parametrize("kind", TYPES)
def test_a_row_has_tokens_for_its_features_before_its_words(kind):
    """Rare categories are one; numbers pass edges, so that their order is seen."""
    config = TokenizerConfig(type=kind, max_vocab_size=120)
    tokenizer = parse_tokenizer(train_tokenizer(ROWS, config).to_str())
    form = row_form(tokenizer)

    assert form.features == ("channel", "size")
    assert form.edges["channel"] == ()
    assert len(form.edges["size"]) == 16

    first, *others = tokens_of(tokenizer, row("a text", title="a title", channel="phone", size=0))
    assert [first, others[0]] == ["[CLS]", "channel=phone"]
    assert "\x1etitle" in others
    assert others.index("\x1etitle") < others.index("\x1ebody")

    passed = []
    for size in (0, 40, 99, 1000):
        tokens = tokens_of(tokenizer, row("a text", title="", channel="fax", size=size))
        assert tokens[1] == "channel=(other)"
        passed.append([token for token in tokens if token.startswith("size≥")])
    assert passed[0] == []
    assert passed[1] == passed[3][: len(passed[1])] != []
    assert passed[2] == passed[3]

    assert tokens_of(tokenizer, "plain")[1:3] == ["channel=(missing)", "size=(missing)"]
    no_number = row("text", title="", channel=None, size="many")
    assert tokens_of(tokenizer, no_number)[1:3] == ["channel=(missing)", "size=(other)"]


def test_words_among_numbers_are_categories():
    """Where more than a quarter of the values are no numbers, all values are categories."""
    few = [row("text", size="n/a" if size % 5 == 0 else size % 50) for size in range(200)]
    many = [row("text", size="n/a" if size % 3 == 0 else size % 50) for size in range(200)]
    mostly_numbers = train_tokenizer(few, TokenizerConfig())
    mixed = train_tokenizer(many, TokenizerConfig())

    # An edge is no value of the rows, which may be that of a single one.
    edges = row_form(mostly_numbers).edges["size"]
    assert edges
    assert not set(edges) & {size % 50 for size in range(200) if size % 5}
    assert tokens_of(mostly_numbers, row("text", size="n/a"))[1] == "size=n/a"
    assert tokens_of(mostly_numbers, row("text", size="1e400"))[1] == "size=(other)"
    assert row_form(mixed).edges["size"] == ()
    assert tokens_of(mixed, row("text", size=7))[1] == "size=7"


def test_features_are_never_cut_off():
    tokenizer = train_tokenizer(ROWS, TokenizerConfig())
    long = row("word " * 10_000, title="", channel="email", size=99)

    tokenized = tokenize(tokenizer, [long], max_seq_len=32)

    assert (tokenized.kinds_of(np.arange(18)) == [WORD, *[FEATURE] * 17]).all()
    assert tokenized.truncated.all()


@pytest.mark.parametrize("text", ["\x1echannel\x1femail\x1dtext", "\x1echannel\x1femail", "\x1e"])
def test_no_text_can_spell_a_feature(text):
    tokenizer = train_tokenizer(ROWS, TokenizerConfig())

    tokens = tokens_of(tokenizer, without_separators(text))

    assert "channel=email" not in tokens
    assert tokens[1] == "channel=(missing)"


def test_the_places_of_tokens_are_those_of_what_is_shown():
    tokenizer = train_tokenizer(ROWS, TokenizerConfig())
    text = row("some body", title="A title", channel="email", size=99)

    shown = readable(text)
    spans = token_spans(tokenizer, text, max_seq_len=64)

    pieces = [shown[span.start : span.end] for span in spans]
    assert pieces == [
        "channel=email",
        *["size=99"] * 16,
        *["", "A", "title"],
        *["", "some", "body"],
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda tokens: ["\x1esize\x1f\x1f5.0", *tokens],
        lambda tokens: [*tokens[:2], *tokens[3:]],
        lambda tokens: [token.replace("\x1f\x1f1", "\x1f\x1fmany") for token in tokens],
    ],
)
def test_disordered_tokens_of_features_are_refused(change):
    tokenizer = json.loads(train_tokenizer(ROWS, TokenizerConfig()).to_str())
    vocabulary = tokenizer["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens = tokens[:4] + change([token for token in tokens[4:] if token.startswith("\x1e")])
    tokenizer["model"]["vocab"] = {token: number for number, token in enumerate(tokens)}

    with pytest.raises(ValueError, match=r"not in order|could not convert"):
        parse_tokenizer(json.dumps(tokenizer))
