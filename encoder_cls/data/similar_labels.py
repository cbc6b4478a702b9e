"""Find labels that look like a misspelling or another spelling of a more frequent label."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from encoder_cls.system.label_cells import label_key


class SimilarLabels(NamedTuple):
    """A label, and the rarer labels that look like it."""

    label: str
    num_rows: int
    others: dict[str, int]


# The largest number of labels among which misspellings are looked for: each is compared with each.
MAX_COMPARED = 500
# The smallest and the largest number of letters of labels that may look like another one: the time
# to compare two labels grows with the square of their length.
MIN_LETTERS = 2
MAX_LETTERS = 200
# The largest number of rows of a misspelling, as a share of those of the right label. Two frequent
# labels that differ by a letter, such as increased and decreased, mean two classes.
MISSPELLING_SHARE = 0.2

_DIGITS = re.compile("[0-9]+")
# Letters with their usual spelling in ASCII, beside those that only lose an accent.
_SPELLED_OUT = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "ø": "oe", "å": "aa"}
# The endings of plurals and of inflected forms, the longest first.
_ENDINGS = ("en", "es", "e", "n", "s")
# The smallest number of letters that an ending leaves.
MIN_STEM = 4


def similar_labels(counts: Mapping[str, int]) -> list[SimilarLabels]:
    """Find labels that look like a more frequent label, the most frequent first.

    They differ in how umlauts, accents or spaces are written, in an ending such as that of a
    plural, or in one or two letters and are much rarer. Labels that differ in a number do not look
    alike, nor do those with hardly a letter (1 and -1, A and A+).
    """
    is_compared = len(counts) <= MAX_COMPARED
    by_count = sorted(counts, key=lambda label: (-counts[label], label))

    # Look for each label among the more frequent labels that look like no other label.
    others_of: dict[str, dict[str, int]] = {}
    by_form: dict[str, str] = {}
    for label in by_count:
        num_letters = sum(letter.isalpha() for letter in label)
        if not MIN_LETTERS <= num_letters <= MAX_LETTERS:
            continue

        plain = _plain(label)
        # What looks like an ending may belong to the word: Person and Personen have the form
        # "person", but the stem of the first is "perso".
        forms = (_stem(plain), _joined(plain))

        similar = None
        for form in forms:
            similar = similar or by_form.get(form)
        if similar is None and is_compared:
            similar = _misspelt(label, counts, others_of)

        if similar is None:
            for form in forms:
                by_form.setdefault(form, label)
            others_of[label] = {}
        elif label_key(label) != label_key(similar):
            others_of[similar][label] = counts[label]

    return [
        SimilarLabels(label, counts[label], others) for label, others in others_of.items() if others
    ]


def label_map_of(similar: list[SimilarLabels]) -> dict[str, str]:
    """The `data.label_map` that joins similar labels."""
    mapping = {}
    for group in similar:
        for other in group.others:
            mapping[other] = group.label
    return mapping


def _plain(label: str) -> str:
    spelled = "".join(_SPELLED_OUT.get(letter, letter) for letter in label_key(label))
    letters = unicodedata.normalize("NFKD", spelled)
    without_accents = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return " ".join(re.sub(r"[\W_]+", " ", without_accents).split())


def _joined(plain: str) -> str:
    return plain.replace(" ", "") or plain


def _stem(plain: str) -> str:
    joined = _joined(plain)
    for ending in _ENDINGS:
        if joined.endswith(ending) and len(joined) - len(ending) >= MIN_STEM:
            return joined.removesuffix(ending)
    return joined


def _misspelt(label: str, counts: Mapping[str, int], frequent: Mapping[str, object]) -> str | None:
    plain = _plain(label)
    for other in frequent:
        is_rarer = counts[label] <= MISSPELLING_SHARE * counts[other]
        if is_rarer and _differ_little(plain, _plain(other)):
            return other
    return None


# The smallest number of letters of words in which one letter, or two letters, may differ.
LENGTH_FOR_ONE = 5
LENGTH_FOR_TWO = 9


def _differ_little(first: str, second: str) -> bool:
    if _DIGITS.findall(first) != _DIGITS.findall(second):
        return False

    # Compare the words that differ, if both labels have equally many.
    first_words = first.split()
    second_words = second.split()
    if len(first_words) == len(second_words):
        pairs = [
            (one, other)
            for one, other in zip(first_words, second_words, strict=True)
            if one != other
        ]
    else:
        pairs = [(first, second)]

    for one, other in pairs:
        length = min(len(one), len(other))
        if length < LENGTH_FOR_ONE:
            return False
        most = 2 if length >= LENGTH_FOR_TWO else 1
        if abs(len(one) - len(other)) > most or edit_distance(one, other) > most:
            return False
    return True


def edit_distance(first: str, second: str) -> int:
    """The optimal string alignment distance: no letter is changed twice."""
    # distances[i][j] is the distance between the first i letters and the first j letters.
    distances = [list(range(len(second) + 1))]
    for i, letter in enumerate(first, start=1):
        row = [i]
        for j, other in enumerate(second, start=1):
            removed = distances[i - 1][j] + 1
            inserted = row[j - 1] + 1
            replaced = distances[i - 1][j - 1] + (letter != other)
            best = min(removed, inserted, replaced)
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                best = min(best, distances[i - 2][j - 2] + 1)
            row.append(best)
        distances.append(row)
    return distances[-1][-1]
