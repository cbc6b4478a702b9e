"""JSON that is safe to print."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.system.json_values import json_text

VALUES = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(VALUES)
def test_json_text_keeps_the_value(value):
    """A reader gets the value. Only line ends of indented JSON are unprintable."""
    assert json.loads(json_text(value)) == value
    assert json.loads(json_text(value, indent=2)) == value
    assert json_text(value, indent=2).replace("\n", "").isprintable()


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_json_does_not_have_are_refused(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"values": [number]})
