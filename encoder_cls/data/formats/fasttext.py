"""Parse lines of fastText files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

PREFIX = "__label__"

# What separates words for fastText; other blanks, such as U+00A0, are part of a word.
_BLANKS = " \t\v\f\r\n\0"
_LABEL = re.compile(rf"(?:^|(?<=[{_BLANKS}])){PREFIX}([^{_BLANKS}]*)")
_LATER_LABEL = re.compile(rf"[{_BLANKS}]+{PREFIX}[^{_BLANKS}]*")
_LEADING_LABELS = re.compile(rf"^[{_BLANKS}]*(?:{PREFIX}[^{_BLANKS}]*(?:[{_BLANKS}]+|$))+")


class LabelledLine(NamedTuple):
    """The labels of a line, wherever they are in it, and the text without them."""

    labels: Sequence[str]
    text: str


def is_labelled(line: str) -> bool:
    """Whether a line begins with a label."""
    return line.lstrip(_BLANKS).startswith(PREFIX)


def parse_line(line: str) -> LabelledLine:
    """Take the labels off a line; the text behind them, but for its line end and labels in it, stays as it is.

    fastText takes a word that begins with `__label__` for a label wherever it is in the line.
    """
    text = line.removesuffix("\n").removesuffix("\r")
    return LabelledLine(_LABEL.findall(text), _LATER_LABEL.sub("", _LEADING_LABELS.sub("", text)))
