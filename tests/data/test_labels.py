"""What labels are: one answer for all of them, and the same for those of digits and for integers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_cls.data.labels import Classes, names_as_texts, what_labels_are
from encoder_cls.data.rows import SourceLocation
from encoder_cls.errors import DataError

NUMBERS = st.integers(0, 6).map(str)


def locations(labels: list[str]) -> dict[str, SourceLocation]:
    return {label: SourceLocation("f", line) for line, label in enumerate(labels)}


@settings(deadline=None, derandomize=True)
@given(
    labels=st.lists(NUMBERS | st.sampled_from("ab"), min_size=1, max_size=4, unique=True),
    names=st.lists(NUMBERS | st.sampled_from("ab"), min_size=1, max_size=5, unique=True),
)
def test_labels_are_what_they_alone_can_be(labels, names):
    """Names if only that fits, indices if only that does; no two labels ever become one class."""
    are_names = set(labels) <= set(names)
    are_indices = all(label.isdigit() and int(label) < len(names) for label in labels)
    by_index = [names[int(label)] for label in labels] if are_indices else []
    if are_names != are_indices or (are_names and by_index == labels):
        found = what_labels_are(locations(labels), names)
        assert found == ("names" if are_names else "indices")
        classes = [Classes(names, found).name(label, "f") for label in labels]
        assert classes == (labels if are_names else by_index)
        assert len(set(classes)) == len(labels)
    else:
        with pytest.raises(DataError, match=r"^f:"):
            what_labels_are(locations(labels), names)


def test_without_names_every_label_is_one():
    """Whatever it looks like."""
    assert what_labels_are(locations(["1", "01", "a"]), None) == "names"
    assert Classes(None, "names").name("01", "f") == "01"


def test_names_with_leading_zeros_are_no_indices():
    """Nobody counts 00, 01, 02 where these are the names; where they are not, these are numbers all the same."""
    assert what_labels_are(locations(["01", "02"]), ["01", "02", "03"]) == "names"
    assert what_labels_are(locations(["00", "01"]), ["no", "yes"]) == "indices"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lost_or_stolen_card", "lost or stolen card"),
        ("Sci/Tech", "Sci Tech"),
        ("cardArrival", "card Arrival"),
        ("top-up-limits", "top up limits"),
        ("topUpATM", "top Up ATM"),
        ("reverted_card_payment?", "reverted card payment"),
        ("größeÄndern", "größe Ändern"),
        ("HUM", "HUM"),
        ("4", ""),
        ("__", ""),
    ],
)
def test_a_name_is_split_into_its_words(name, text):
    """At what is no letter or digit, and where small letters end; a number says nothing."""
    assert names_as_texts([name]) == [text]
