"""The names of labels: as they are compared, and as texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence


def label_key(label: str) -> str:
    """Reduce a label to its visible letters: no case, doubled spaces or zero-width characters."""
    normalized = unicodedata.normalize("NFKC", label)
    visible = "".join(
        character for character in normalized if unicodedata.category(character) != "Cf"
    )
    return " ".join(unicodedata.normalize("NFKC", visible.casefold()).split())


def names_as_texts(names: Sequence[str]) -> list[str]:
    """Split each class name into its words; one without a letter becomes empty."""
    texts = []
    for name in names:
        has_letters = any(character.isalpha() for character in name)
        texts.append(_words(name) if has_letters else "")
    return texts


def _words(name: str) -> str:
    """Split at all but letters and digits, and between a small letter and a capital."""
    spaced = ""
    before = ""
    for character in name:
        if before.islower() and character.isupper():
            spaced += " "
        spaced += character
        before = character
    return " ".join(re.sub(r"[\W_]+", " ", spaced).split())
