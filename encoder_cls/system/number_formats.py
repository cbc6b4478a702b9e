"""The formats of numbers in Excel files: which are dates or times, which have leading zeros."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import NamedTuple

# The codes of the formats that files use without defining them (ECMA-376 part 1, 18.8.30).
BUILT_IN_CODES = MappingProxyType(
    {
        0: "General",
        1: "0",
        2: "0.00",
        3: "#,##0",
        4: "#,##0.00",
        9: "0%",
        10: "0.00%",
        11: "0.00E+00",
        12: "# ?/?",
        13: "# ??/??",
        14: "mm-dd-yy",
        15: "d-mmm-yy",
        16: "d-mmm",
        17: "mmm-yy",
        18: "h:mm AM/PM",
        19: "h:mm:ss AM/PM",
        20: "h:mm",
        21: "h:mm:ss",
        22: "m/d/yy h:mm",
        37: "#,##0_);(#,##0)",
        38: "#,##0_);[Red](#,##0)",
        39: "#,##0.00_);(#,##0.00)",
        40: "#,##0.00_);[Red](#,##0.00)",
        45: "mm:ss",
        46: "[h]:mm:ss",
        47: "mmss.0",
        48: "##0.0E+0",
        49: "@",
    }
)

# The largest number of characters of a code in Excel.
MAX_CODE = 255
# Parts of a code that stand for themselves, are blank or are colours, conditions and locales.
_LITERAL = re.compile(r'"[^"]*"|\\.|[_*].|\[[^\[\]]*\]')
# Hours, minutes or seconds that are not cut at a day, as durations have them.
_ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)


class NumberFormat(NamedTuple):
    """How a spreadsheet shows the numbers of a cell.

    Attributes:
        code: such as `yyyy-mm-dd`.
        is_time: for dates, times of day and durations.
        num_digits: to which zeros fill up whole numbers.
    """

    code: str
    is_time: bool
    is_duration: bool
    has_clock: bool
    num_digits: int


def number_format_of(code: str) -> NumberFormat:
    """The format of a code, by its first `MAX_CODE` characters."""
    code = code[:MAX_CODE]
    # The format of positive numbers comes first.
    positive = code.partition(";")[0]
    is_duration = _ELAPSED.search(positive) is not None
    letters = set(_LITERAL.sub("", positive).lower())
    is_only_zeros = bool(code) and set(code) == {"0"}
    return NumberFormat(
        code=code,
        is_time=is_duration or not letters.isdisjoint("dmyhs"),
        is_duration=is_duration,
        has_clock=is_duration or not letters.isdisjoint("hs"),
        num_digits=len(code) if is_only_zeros else 0,
    )


def is_padded_number(text: str, number_format: NumberFormat) -> bool:
    """Whether a text is a number with the leading zeros of a format."""
    has_length = 0 < len(text) == number_format.num_digits
    return has_length and text.isascii() and text.isdigit()
