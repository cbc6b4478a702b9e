"""Any text can be shown: no character of it steers a terminal or a page."""

from __future__ import annotations

import base64
import hashlib
import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.system.display import kind, printable, replace_unprintable, shortened, shown
from encoder_cls.system.html_pages import html_page, isolated
from encoder_cls.system.json_values import json_text

CHARACTERS = ["\n", "\x1b", "\x85", "\x9b", "\u202e", "\u2028", "\ud800", "\0", "\U000e0041"]


@pytest.mark.parametrize("character", CHARACTERS)
def test_no_control_character_is_shown(character):
    text = f"é {character}[31m"
    for safe in (shown(text), printable(text), kind([text]), json_text({text: text})):
        assert safe.isprintable()
        assert "é" in safe


def test_a_text_is_cut_to_its_limit():
    assert len(shown("x" * 10_000)) < 100
    assert shown("short") == "'short'"
    assert shortened("abcdef", limit=6) == "abcdef"
    assert shortened("abcdefg", limit=6) == "abcde…"


def test_what_cannot_be_printed_is_replaced():
    assert replace_unprintable("a\nb\x1b\ud800\u202e") == "a\ufffdb\ufffd\ufffd\ufffd"
    assert replace_unprintable("a\n\tb\x1b", keep="\n\t") == "a\n\tb\ufffd"
    assert replace_unprintable("a\r\nb\rc", keep="\n\t") == "a\nb\nc"


@pytest.mark.parametrize("text", ["می\u200cخواهم", "👨\u200d👩\u200d👧", "क्\u200dष"])
def test_joiners_are_part_of_a_word(text):
    """Without them it is another word, or several pictures."""
    assert printable(text) == text
    assert shown(text) == f"'{text}'"
    assert replace_unprintable(text) == text

    # The escape sequence of a joiner, where it is in a text, stays as it is.
    assert shown(rf"\u200c \\u200d{text}") == repr(r"\u200c \\u200d")[:-1] + f"{text}'"


def test_marks_and_spaces_of_any_script_stay_in_pages():
    text = "\u3000\xa0\u200f🏴\U000e0067\U000e007f"
    assert replace_unprintable(text) == text


def test_the_policy_lets_the_script_of_the_page_run_and_no_other():
    """It names the hash of exactly the text between the script's tags."""
    page = html_page("title", "<p>body</p>")
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; "
    )
    assert policy in page
    assert not re.search(r"(src|href)=.?https?:", page)


def test_a_title_is_text_and_a_body_is_markup():
    page = html_page("<b>{title}</b>", "<b>{body}{0}</b>")
    assert "<title>&lt;b&gt;{title}&lt;/b&gt;</title>" in page
    assert "<b>{body}{0}</b>" in page


@settings(deadline=None, derandomize=True)
@given(st.text())
def test_any_text_is_safe_in_a_page(text):
    """Nothing in it is markup or steers a terminal; all that can be shown is shown."""
    page = html_page(text, "")
    _, _, found = page.partition("<title>")
    found, _, _ = found.partition("</title>")
    assert not set(found) & set("<>\"'")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", found)
    assert html.unescape(found) == replace_unprintable(text, keep="\n\t")
    found.encode()


def test_names_from_right_to_left_move_nothing_beside_them():
    """Each name is isolated with its spaces, so that numbers stay at its end."""
    assert isolated("حساب بنكي (3), a & b (4)") == "<bdi>حساب بنكي</bdi> (3), a &amp; b (4)"
