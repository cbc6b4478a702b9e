"""Class names in, what they say as texts out: `lost_or_stolenCard` tells of a lost or stolen card."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Between words: what is no letter or digit, an underscore, a small letter before a capital, a capital before a word.
_BETWEEN_WORDS = re.compile(r"[\W_]+|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def names_as_texts(names: Sequence[str]) -> list[str]:
    """Of each class the words of its name; nothing where it has none, as a number has."""
    return ["" if name.isdecimal() else " ".join(filter(None, _BETWEEN_WORDS.split(name))) for name in names]
