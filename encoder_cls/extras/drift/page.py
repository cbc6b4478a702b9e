"""The pages of `encoder-cls drift`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from encoder_cls.extras.drift import agreement as agreements
from encoder_cls.extras.drift.agreement import Agreement
from encoder_cls.extras.drift.comparison import Figure
from encoder_cls.extras.drift.find_drift import Comparison, Drift
from encoder_cls.extras.drift.sentences import (
    FIGURES,
    MOST_WORDS_LISTED,
    SHOWN_BY_PERIOD,
    accuracy_sentences,
    alarms_in_words,
    class_rows,
    figure_changes,
    headline,
    name_of,
    notes,
    p_value_as_text,
    value_of,
)
from encoder_cls.system.html_pages import html_page, render

# The chart: its width and height, and the distances of its plane from the edges.
WIDTH = 440
HEIGHT = 270
LEFT = 46
RIGHT = 16
TOP = 24
BOTTOM = 42
# Added to the common style sheet: on a narrow screen, tables scroll instead of breaking names.
STYLE = """
.over-time { max-width: 40rem; }
.wide td:first-child { min-width: 9rem; }
"""
# The most names of periods below the chart.
MOST_NAMES = 4


class Line(NamedTuple):
    """A line: its class in the style sheet, its name, and the `d` of its path."""

    style: str
    name: str
    path: str


class Tick(NamedTuple):
    """A period that is named below the chart; `anchor` is the point of its name that is at `x`."""

    x: float
    name: str
    anchor: str


def drift_page(drift: Drift) -> str:
    """The page of what was found of new texts."""
    rows = class_rows(drift.whole)
    title = f"The texts of {Path(drift.source).name}"
    body = render(
        "extras/drift/drift.html",
        title=title,
        drift=drift,
        whole=drift.whole,
        headline=headline(drift),
        alarms=list(alarms_in_words(drift.whole)),
        accuracy_sentences=list(accuracy_sentences(drift.whole)),
        notes=list(notes(drift)),
        figures=figure_changes(drift.whole),
        class_rows=rows,
        largest_share=max(max(row.change.now or 0, row.change.before or 0) for row in rows) or 1,
        shown_by_period=SHOWN_BY_PERIOD,
        last_periods=list(drift.periods.items())[-2:],
        class_numbers={name: number for number, name in enumerate(drift.label_names)},
        new_words=drift.texts.new_words.most_common(MOST_WORDS_LISTED),
        lines=_lines(drift.periods),
        ticks=_ticks(list(drift.periods)),
        y=_y,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        name_of=name_of,
        value_of=value_of,
        p_value_as_text=p_value_as_text,
    )
    return html_page(title, body, style=STYLE)


def agreement_page(agreement: Agreement) -> str:
    """The page of where two models differ."""
    title = "Where two models differ"
    body = render(
        "extras/drift/agreement.html",
        title=title,
        headline=agreements.headline(agreement),
        agreement=agreement,
        pairs=agreement.pairs.most_common(),
        in_words=agreements.in_words,
    )
    return html_page(title, body)


def _x(place: int, number: int) -> float:
    fraction = place / (number - 1) if number > 1 else 0.5
    return LEFT + fraction * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _lines(periods: Mapping[str, Comparison]) -> list[Line]:
    if len(periods) < 2:
        return []

    shares: dict[str, list[float | None]] = {
        "accuracy to expect": [period.expected.accuracy for period in periods.values()]
    }
    for figure in (Figure.UNSURE, Figure.UNFAMILIAR, Figure.UNKNOWN_WORDS):
        changes = [period.change_of(figure) for period in periods.values()]
        shares[FIGURES[figure]] = [change.now if change else None for change in changes]

    lines = []
    for number, (name, values) in enumerate(shares.items(), start=1):
        points = [
            f"{_x(place, len(values)):.1f},{_y(value):.1f}"
            for place, value in enumerate(values)
            if value is not None
        ]
        if points:
            lines.append(Line(f"c{number}", name, f"M{' '.join(points)}"))
    return lines


def _ticks(names: list[str]) -> list[Tick]:
    step = max(1, math.ceil(len(names) / MOST_NAMES))
    places = range(0, len(names), step)
    anchors = {0: "start", len(names) - 1: "end"}
    return [
        Tick(_x(place, len(names)), names[place], anchors.get(place, "middle")) for place in places
    ]
