"""The pattern by which texts are split into words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# The characters of scripts without spaces between words, for a class of `tokenizers.Regex`.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
# About the same characters, for a class of `re`, which knows no names of scripts.
UNSPACED_RANGES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f"

# Emoji and other pictures.
PICTURES = r"\p{Extended_Pictographic}"
# The letters of which a flag has two.
FLAGS = r"\x{1F1E6}-\x{1F1FF}"
# The characters of words: letters, digits, and the joiners U+200C and U+200D.
WORD_CHARACTERS = r"\w\x{200C}\x{200D}"

CHARACTER_CLASSES = {
    "word": WORD_CHARACTERS,
    "flag": FLAGS,
    "picture": PICTURES,
    "unspaced": UNSPACED,
}
"""The classes of characters by which texts are split into words, for `tokenizers.Regex`.

A character of several classes belongs to the last of them. All other characters are white space or
punctuation.
"""

# The place between two grapheme clusters that belong together. The second one is a consonant that
# U+17D2 or U+1039 stacks below the first one, or the second half of a Thai or Lao AM, which NFKC
# separates.
_STACKED = (
    rf"(?<=[\x{{17D2}}\x{{1039}}])(?=[{UNSPACED}])"
    r"|(?<=[\x{0E4D}\x{0ECD}])(?=[\x{0E32}\x{0EB2}])"
)

# A word is a grapheme cluster of a script without spaces, a picture, a flag, a run of letters and
# digits, or a run of punctuation.
WORDS = (
    rf"(?=[{UNSPACED}])(?:\X(?:{_STACKED}))*\X"
    rf"|(?=[{PICTURES}])\X"
    rf"|[{FLAGS}]{{1,2}}"
    rf"|[{WORD_CHARACTERS}&&[^{UNSPACED}{PICTURES}]]+"
    rf"|[^{WORD_CHARACTERS}\s{UNSPACED}{PICTURES}{FLAGS}]+"
)
# The same words, for texts that consist of ASCII characters only.
ASCII_WORD = re.compile(r"\w+|[^\w\s]+", re.ASCII)


@lru_cache(maxsize=1 << 12)
def continues_character(character: str) -> bool:
    """Whether a character is a part of the one before it.

    It is a mark, such as an accent, or the rest of a decomposed Hangul syllable; some, such as the
    marks of half-width kana, become one only by normalization.
    """
    if character.isascii():
        return False
    first = unicodedata.normalize("NFKD", character)[0]
    is_mark = unicodedata.category(first).startswith("M")
    is_rest_of_syllable = "\u1160" <= first <= "\u11ff"
    return is_mark or is_rest_of_syllable
