"""The words of texts that may tell of a person: rare ones, and those of numbers and addresses."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Set

from encoder_cls.extras.audit.readable_words import WordSplitter
from encoder_cls.system.row_text import plain_text, row_parts

# A word with so many digits may be a number of somebody's. A year has four.
MIN_DIGITS = 5
# E-mail addresses and links. The look-behind lets a long word be read only once.
ADDRESS = re.compile(
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:https?://|www\.)\S+", re.IGNORECASE
)
HANDLE = re.compile(r"(?<![\w.@])@\w+")
# Words that are in addresses of everybody.
COMMON_IN_ADDRESSES = {"http", "https", "www", "com", "net", "org", "html", "htm", "php"}


class TellingWords:
    """Collects the words of texts; one in texts of fewer than `min_groups` groups is rare."""

    def __init__(self, splitter: WordSplitter, *, min_groups: int) -> None:
        self._splitter = splitter
        self._min_groups = min_groups
        # The groups of the texts with a word; no more than `min_groups` of them.
        self._groups: defaultdict[str, set[int]] = defaultdict(set)
        # Words that stand outside of addresses and handles, and those inside.
        self._ordinary: set[str] = set()
        self._in_addresses: set[str] = set()
        self._in_handles: set[str] = set()

    def add(self, row: str, group: int) -> None:
        """Add the words of a text, or of a row, whose values beside the text are never rare."""
        text = plain_text(row)
        for word in self._splitter.words([text]):
            groups = self._groups[word]
            if len(groups) < self._min_groups:
                groups.add(group)

        self._add_kinds(text)
        for value in row_parts(row).features.values():
            self._add_kinds(value)

    def _add_kinds(self, text: str) -> None:
        self._in_addresses |= self._splitter.words(ADDRESS.findall(text))
        text = ADDRESS.sub(" ", text)
        self._in_handles |= self._splitter.words(HANDLE.findall(text))
        self._ordinary |= self._splitter.words([HANDLE.sub(" ", text)])

    def of_addresses(self) -> set[str]:
        """The words that stand in addresses alone."""
        return self._in_addresses - self._ordinary - COMMON_IN_ADDRESSES

    def of_handles(self) -> set[str]:
        """The words that stand in handles alone."""
        return self._in_handles - self._ordinary

    def numbers(self) -> set[str]:
        """The words with many digits."""
        return numbers_among(self._ordinary | self._in_addresses | self._in_handles)

    def rare_words(self, subwords: Set[str]) -> set[str]:
        """The words in texts of too few groups, without short numbers, such as years.

        Sub-words are parts of longer words, too: one in texts of enough groups is not rare, even if
        few have it as a word.
        """
        rare = {word for word, groups in self._groups.items() if len(groups) < self._min_groups}
        rare_subwords = rare & subwords
        longest = max(map(len, rare_subwords), default=0)

        groups_of_parts: defaultdict[str, set[int]] = defaultdict(set)
        for word, groups in self._groups.items():
            for part in rare_subwords & _parts(word, longest):
                groups_of_parts[part] |= groups
        rare -= {part for part, found in groups_of_parts.items() if len(found) >= self._min_groups}
        return {word for word in rare if not word.isdecimal() or len(word) >= MIN_DIGITS}


def numbers_among(words: Set[str]) -> set[str]:
    """The ones of these words with many digits."""
    return {word for word in words if sum(map(str.isdigit, word)) >= MIN_DIGITS}


def _parts(word: str, longest: int) -> set[str]:
    ends = range(2, len(word) + 1)
    return {word[start:end] for end in ends for start in range(max(0, end - longest), end - 1)}
