"""Tables of what the `tokenizers` library does with each Unicode character.

A browser has other versions of Unicode properties and normalization, so an exported model carries
these tables, for which the library is asked about every character.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, normalizers, pre_tokenizers

from encoder_cls import CHARACTER_CLASSES, continues_character

# The kinds of characters and the further bits, as in `engine/characters.mjs`.
SPACE = 1
WORD = 2
UNSPACED = 3
PICTURE = 4
FLAG = 5
EXTEND = 8
SPACING_MARK = 16
NORMALIZED = 32
JOINS = 64
ACCENT = 128
UPPER = 256

# The separator of samples that are given to the library at once. It begins a new grapheme cluster,
# and no normalization changes it or moves a mark across it. It is a space.
SEPARATOR = "\n"

# The code points that are asked about: planes 0 to 3, and plane 14, without the separator. The
# planes 4 to 13 are not assigned, and those from 15 on are for private use: nothing changes their
# characters, and all of them are punctuation.
_ASSIGNED = np.r_[0:0xD800, 0xE000:0x40000, 0xE0000:0xF0000]
CODE_POINTS = np.setdiff1d(_ASSIGNED, [ord(SEPARATOR)])
NUM_CODE_POINTS = 0x110000

ZERO_WIDTH_JOINER = "\u200d"
# The combining marks of the lowest and of the highest combining class.
LOWEST_MARK = "\u0334"
HIGHEST_MARK = "\u0345"


@lru_cache(maxsize=1)
def character_tables() -> dict[str, Any]:
    """Make the tables of all characters, as JSON values.

    `bits` are runs of code points with the same bits, as a flat list of lengths and bits;
    `lowercase` has all letters with a lower case.
    """
    characters = [chr(code_point) for code_point in CODE_POINTS.tolist()]
    lower = _normalized(characters, normalizers.Lowercase())

    bits = np.zeros(NUM_CODE_POINTS, dtype=np.int64)
    bits[ord(SEPARATOR)] = SPACE
    bits[CODE_POINTS] = (
        _kinds(characters)
        + _cluster_bits(characters)
        + _normalization_bits(characters)
        + UPPER * _differ(lower, characters)
    )
    return {"bits": _runs(bits), "lowercase": _lowercase(characters, lower)}


def _kinds(characters: list[str]) -> NDArray[np.int64]:
    kinds = np.zeros(len(characters), dtype=np.int64)
    joined = "".join(characters)
    for start, end in _matches(r"\s+", joined):
        kinds[start:end] = SPACE

    kind_of_class = {"word": WORD, "flag": FLAG, "picture": PICTURE, "unspaced": UNSPACED}
    for name, characters_of_class in CHARACTER_CLASSES.items():
        for start, end in _matches(f"[{characters_of_class}]+", joined):
            kinds[start:end] = kind_of_class[name]
    return kinds


def _cluster_bits(characters: list[str]) -> NDArray[np.int64]:
    bits = np.zeros(len(characters), dtype=np.int64)

    # Each sample is three characters, of which the second one is asked about.
    samples = "".join(f"a{character}{SEPARATOR}" for character in characters)
    for start, _ in _matches(r"(?<=a)\Y[^\n]", samples):
        bits[start // 3] = SPACING_MARK

    # A joiner joins two pictures, also after characters that extend the first one.
    (joined,) = np.nonzero(bits)
    for index in joined:
        sample = f"\u2764{characters[index]}{ZERO_WIDTH_JOINER}\u2764"
        if _matches(r"\X", sample) == [(0, 4)]:
            bits[index] = EXTEND
    return bits


def _normalization_bits(characters: list[str]) -> NDArray[np.int64]:
    decomposed = _normalized(characters, normalizers.NFD())
    fully_decomposed = _normalized(characters, normalizers.NFKD())

    # A mark of a combining class changes places with a mark of a lower class after it, or of a
    # higher class before it.
    samples = [f"a{HIGHEST_MARK}{character}{LOWEST_MARK}" for character in characters]
    reordered = _normalized(samples, normalizers.NFD())
    is_unchanged = ~_differ(decomposed, characters)
    is_mark = is_unchanged & _differ(reordered, samples)

    # Characters of which others are composed.
    components: set[str] = set()
    for character, parts in zip(characters, decomposed, strict=True):
        if parts != character:
            components.update(parts)

    is_component = np.array([character in components for character in characters])
    is_normalized = is_mark | is_component | _differ(fully_decomposed, characters)

    joins = np.array([continues_character(character) for character in characters])
    stripped = _normalized(characters, normalizers.StripAccents())
    is_accent = np.array([not text for text in stripped])
    bits: NDArray[np.int64] = NORMALIZED * is_normalized.astype(np.int64)
    bits += JOINS * joins
    bits += ACCENT * is_accent
    return bits


def _normalized(texts: list[str], normalizer: normalizers.Normalizer) -> list[str]:
    normalized: str = normalizer.normalize_str(SEPARATOR.join(texts))
    return normalized.split(SEPARATOR)


def _matches(pattern: str, text: str) -> list[tuple[int, int]]:
    splitter = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return [bounds for _, bounds in splitter.pre_tokenize_str(text)]


def _differ(texts: list[str], others: list[str]) -> NDArray[np.bool_]:
    pairs = zip(texts, others, strict=True)
    return np.array([text != other for text, other in pairs])


def _runs(bits: NDArray[np.int64]) -> list[int]:
    starts = np.flatnonzero(np.diff(bits, prepend=-1))
    lengths = np.diff(starts, append=len(bits))
    runs: list[int] = np.stack([lengths, bits[starts]], axis=1).ravel().tolist()
    return runs


def _lowercase(characters: list[str], lower: list[str]) -> dict[str, Any]:
    """Letters in runs with the same difference to their lower case.

    `runs` have the first and last code point, the step, and the difference; `others` are letters
    with a lower case of several characters.
    """
    runs: list[list[int]] = []
    others = {}
    for letter, lower_letter in zip(characters, lower, strict=True):
        if letter == lower_letter:
            continue
        if len(lower_letter) > 1:
            others[letter] = lower_letter
            continue

        code_point = ord(letter)
        difference = ord(lower_letter) - code_point
        if runs and _continues(runs[-1], code_point, difference):
            runs[-1][2] = code_point - runs[-1][1]
            runs[-1][1] = code_point
        else:
            runs.append([code_point, code_point, 1, difference])
    return {"runs": [number for run in runs for number in run], "others": others}


def _continues(run: list[int], code_point: int, difference: int) -> bool:
    """Whether a letter continues a run, in which every one or every other one is a capital."""
    first, last, step, difference_of_run = run
    if difference != difference_of_run:
        return False
    if first == last:
        return code_point - last <= 2
    return code_point - last == step
