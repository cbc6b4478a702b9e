"""Dates in a column of texts, and the weeks or months that they are in."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The value of the day of a text without a date.
NO_DAY = 0
# How dates may be written, beside ISO 8601; a time may follow after a space. Dates such as 3/4/2026
# are not read: that is in March or in April.
OTHER_FORMS = ("%d.%m.%Y", "%d.%m.%y", "%Y-%m", "%Y/%m/%d")
# Texts of more days than this are divided into months, texts of fewer days into weeks.
MOST_DAYS_IN_WEEKS = 100


def day_of(value: Any) -> int:
    """The day of a date, as `date.toordinal` counts; `NO_DAY` for an empty cell.

    Raises:
        ValueError: the value is no date.
    """
    if value is None:
        return NO_DAY
    if isinstance(value, date):
        return value.toordinal()

    text = str(value).strip()
    if not text:
        return NO_DAY
    try:
        return datetime.fromisoformat(text).toordinal()
    except ValueError:
        pass
    without_time = text.split()[0]
    for form in OTHER_FORMS:
        try:
            return datetime.strptime(without_time, form).toordinal()
        except ValueError:
            continue
    raise ValueError(f"{text!r} is no date")


def periods_of(days: NDArray[np.int32]) -> dict[str, NDArray[np.bool_]]:
    """Which texts, by their days, (texts,), are in each week or month, the earliest first.

    A month is called 2026-06, and a week by its Monday, 2026-06-29.
    """
    distinct = np.unique(days[days != NO_DAY])
    if not len(distinct):
        return {}

    in_weeks = distinct[-1] - distinct[0] < MOST_DAYS_IN_WEEKS
    days_by_period: dict[str, list[int]] = {}
    for day in distinct.tolist():
        period = _week(day) if in_weeks else f"{date.fromordinal(day):%Y-%m}"
        days_by_period.setdefault(period, []).append(day)
    return {period: np.isin(days, members) for period, members in days_by_period.items()}


def _week(day: int) -> str:
    monday = day - date.fromordinal(day).weekday()
    return date.fromordinal(monday).isoformat()
