"""Any text in Markdown."""

from __future__ import annotations

import pytest

from encoder_cls.system.markdown import markdown_code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("plain", "`plain`"),
        ("a`b", "`` a`b ``"),
        ("a\n\x1b[31m", "`a\\n\\x1b[31m`"),
    ],
)
def test_a_name_is_code_in_markdown(name, code):
    """It is on one line, and ends where the name ends."""
    assert markdown_code(name) == code
