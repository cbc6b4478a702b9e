"""fastText's lines: labels are found as fastText finds them, and the text stays as it is."""

from __future__ import annotations

import pytest

from encoder_cls.fasttext_format import is_labelled, parse_line


@pytest.mark.parametrize(
    ("line", "labels", "text"),
    [
        ("__label__x One, two.\n", ["x"], "One, two."),
        (" __label__x\t\tone  two \r\n", ["x"], "one  two "),
        ("__label__x", ["x"], ""),
        ("__label__ one", [""], "one"),
        ("__label__a __label__b,c one", ["a", "b,c"], "one"),
        ("__label__a one __label__b", ["a", "b"], "one __label__b"),
        ("__label__a\u00a0b one", ["a\u00a0b"], "one"),
        ("one a__label__b", [], "one a__label__b"),
        (" \n", [], " "),
    ],
)
def test_labels_are_words_with_the_prefix_and_the_text_follows_them(line, labels, text):
    """Wherever in the line they are; only what begins the line is taken off."""
    assert parse_line(line) == (labels, text)
    assert is_labelled(line) == (bool(labels))
