"""Turn the names of labels into texts to learn from."""

from __future__ import annotations

import re
from collections.abc import Sequence


def names_as_texts(names: Sequence[str]) -> list[str]:
    """Turn each class name into a text of its words; a name without a letter becomes empty."""
    texts = []
    for name in names:
        has_letters = any(character.isalpha() for character in name)
        texts.append(_words(name) if has_letters else "")
    return texts


def _words(name: str) -> str:
    """Separate the words of a name, such as `late_fee` or `lateFee`, by spaces."""
    spaced = ""
    before = ""
    for character in name:
        if before.islower() and character.isupper():
            spaced += " "
        spaced += character
        before = character
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())
