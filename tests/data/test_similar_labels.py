"""Labels that look like another spelling of a more frequent label."""

from __future__ import annotations

import pytest

from encoder_cls.data.similar_labels import edit_distance, label_map_of, similar_labels


def test_names_that_are_whole_texts_are_not_compared():
    """To compare two of them takes time that grows with the square of their length."""
    assert similar_labels({"a" * 50_000: 90, "a" * 49_999 + "b": 3}) == []


def test_rarer_spellings_of_a_label_are_found():
    counts = {"Überweisung": 90, "Ueberweisung": 40, "Überweisng": 3, "Mahnung": 50, "mahnungen": 4}
    assert label_map_of(similar_labels(counts)) == {
        "Ueberweisung": "Überweisung",
        "Überweisng": "Überweisung",
        "mahnungen": "Mahnung",
    }


@pytest.mark.parametrize(
    ("frequent", "rare"),
    [
        ("größe", "groesse"),
        ("café", "cafe"),
        ("refund", "Refunds"),
        # The singular ends like a plural, too.
        ("Personen", "Person"),
        ("Person", "Personen"),
        ("late delivery", "late-delivery"),
        ("receive order", "recieve order"),
        ("cancellation", "cancelation"),
    ],
)
def test_they_differ_in_accents_endings_signs_or_letters(frequent: str, rare: str):
    [group] = similar_labels({frequent: 100, rare: 2})
    assert group == (frequent, 100, {rare: 2})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # A number, a short word or another word differs.
        ("level 1", "level 2"),
        ("group a", "group b"),
        ("male", "female"),
        ("card arrival", "cash arrival"),
        # Two letters of a short word differ.
        ("increase", "decrease"),
        # A sign differs.
        ("-1", "1"),
        ("1.5", "15"),
        ("A", "A+"),
        ("C", "C++"),
        # These are one class with data.fold_labels, for which there is another warning.
        ("Refund", "refund"),
    ],
)
def test_different_labels_are_not_similar(first: str, second: str):
    assert similar_labels({first: 100, second: 2}) == []


def test_two_frequent_labels_that_differ_in_a_letter_are_two_classes():
    assert similar_labels({"inbound call": 50, "unbound call": 40}) == []
    assert similar_labels({"inbound call": 50, "unbound call": 4}) != []


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("", "abc", 3),
        ("abc", "abc", 0),
        ("abc", "acb", 1),
        ("abc", "bd", 2),
        ("ca", "abc", 3),
    ],
)
def test_the_edit_distance_counts_changes_and_swaps(first: str, second: str, distance: int):
    assert edit_distance(first, second) == distance
    assert edit_distance(second, first) == distance
