"""Class names in, what they say as texts out: `lost_or_stolenCard` tells of a lost or stolen card."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise


def names_as_texts(names: Sequence[str]) -> list[str]:
    """Of each class the words of its name; nothing where it has no letter, as a number has none."""
    return [_words(name) if any(map(str.isalpha, name)) else "" for name in names]


def _words(name: str) -> str:
    """Words end at what is no letter or digit, at an underscore, and before a capital after a small letter."""
    ends = [one.islower() and two.isupper() for one, two in pairwise(name)]
    spaced = "".join(
        f"{character} " if is_end else character for character, is_end in zip(name, [*ends, False], strict=True)
    )
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())
