"""Model cards: Markdown whatever the names in it are."""

from __future__ import annotations

from encoder_cls.training.model_card import code_span


def test_class_names_are_code_in_a_model_card():
    """Whatever they are made of: on one line, and the code ends where they end."""
    assert code_span("plain") == "`plain`"
    assert code_span("a`b") == "`` a`b ``"
    assert code_span("a\n\x1b[31m") == "`a\\n\\x1b[31m`"
