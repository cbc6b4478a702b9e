"""What names of classes say as texts."""

from __future__ import annotations

import pytest

from encoder_cls.data.labels import names_as_texts


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
