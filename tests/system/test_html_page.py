"""The page around what is shown: its own script runs, and no other."""

from __future__ import annotations

import base64
import hashlib
import html
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.system.display import replace_unprintable
from encoder_cls.system.html_page import escaped, html_page, isolated


def test_the_policy_lets_the_script_of_the_page_run_and_no_other():
    """It names the hash of exactly what stands between the script's tags."""
    page = html_page("title", "<p>body</p>")
    (script,) = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; " in page
    assert not re.search(r"(src|href)=.?https?:", page)


def test_a_title_is_text_and_a_body_is_markup():
    page = html_page("<b>{title}</b>", "<b>{body}{0}</b>")
    assert "<title>&lt;b&gt;{title}&lt;/b&gt;</title>" in page
    assert "<b>{body}{0}</b>" in page


@settings(deadline=None, derandomize=True)
@given(st.text())
def test_any_text_can_stand_in_a_page(text):
    """Nothing in it is markup or steers a terminal, and what can be shown is shown."""
    found = escaped(text)
    assert not set(found) & set("<>\"'")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", found)
    assert html.unescape(found) == replace_unprintable(text, keep="\n\t")
    found.encode()


def test_names_from_right_to_left_move_nothing_beside_them():
    """Each with its spaces is isolated, so that numbers stay at its end."""
    assert isolated("حساب بنكي (3), a & b (4)") == "<bdi>حساب بنكي</bdi> (3), a &amp; b (4)"
    assert isolated('حساب, "b"', in_attribute=True) == "\u2068حساب\u2069, &quot;b&quot;"
