"""What is said of drift: sentences, the tables of a terminal, and values for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from encoder_cls.extras.drift.comparison import (
    SMALLEST_W,
    Change,
    Figure,
    noticeable_difference,
    noticeable_w,
)
from encoder_cls.extras.drift.find_drift import Comparison, Drift, Verdict
from encoder_cls.system.display import aligned, counted, listed, printable

FIGURES = {
    Figure.CLASSES: "shares of all classes",
    Figure.UNFAMILIAR: "unfamiliar texts",
    Figure.UNSURE: "unsure texts",
    Figure.UNKNOWN_WORDS: "words never seen",
    Figure.LENGTH: "words of a text (median)",
    Figure.CONFIDENCE: "mean confidence",
    Figure.ACCURACY: "accuracy, by the labels",
}
# The figures of which each week or month has a value.
SHOWN_BY_PERIOD = (Figure.UNFAMILIAR, Figure.UNSURE, Figure.UNKNOWN_WORDS, Figure.CONFIDENCE)
# The most classes and words that the terminal shows.
MOST_CLASSES = 12
MOST_WORDS = 20
# The most weeks or months that the first sentence names.
MOST_PERIODS = 4
# The most words in JSON and on the page.
MOST_WORDS_LISTED = 100


def name_of(change: Change) -> str:
    """What the figure of a change is called."""
    if change.label is not None:
        return f"class {change.label}"
    return FIGURES[change.figure]


def value_of(figure: Figure, value: float | None) -> str:
    """A value as text; empty for the shares of all classes."""
    if value is None:
        return ""
    if figure is Figure.LENGTH:
        return f"{value:g}"
    return f"{value:.1%}"


def p_value_as_text(p_value: float) -> str:
    """A p-value with three digits after the point."""
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def headline(drift: Drift) -> str:
    """The verdict in a sentence."""
    whole = drift.whole
    if whole.verdict is Verdict.DRIFT:
        return "Drift: these texts differ from those that the model was measured on."

    drifted_periods = [name for name, comparison in drift.periods.items() if comparison.alarms]
    if drifted_periods:
        names = ", ".join(drifted_periods[:MOST_PERIODS])
        if len(drifted_periods) > MOST_PERIODS:
            names += f" and {len(drifted_periods) - MOST_PERIODS} more"
        return f"Drift in {names}, but not in all texts together."
    if whole.verdict is Verdict.TOO_FEW:
        points = 100 * noticeable_difference(whole.before, whole.now)
        return (
            f"Too few texts to tell: with {len(whole.now):,} of them beside {len(whole.before):,} "
            f"held-out ones, a share near one half would have to change by {points:.0f} percentage "
            "points to be noticed."
        )
    return "No drift: nothing has changed by more than chance, and by as much as would matter."


def alarms_in_words(comparison: Comparison) -> Iterator[str]:
    """What has changed, the largest changes of classes first."""
    for alarm in sorted(comparison.alarms, key=lambda alarm: -alarm.size / alarm.smallest):
        before, now = value_of(alarm.figure, alarm.before), value_of(alarm.figure, alarm.now)
        change = f": {before} before, {now} now" if before else " have changed"
        yield f"{name_of(alarm)}{change}"


def accuracy_sentences(comparison: Comparison) -> Iterator[str]:
    """The accuracy to expect, how far to trust it, and the measured one."""
    expected = comparison.expected
    low, high = expected.interval
    sentence = (
        f"Accuracy to expect: {expected.accuracy:.1%} (95% interval: {low:.1%} to {high:.1%}); on "
        f"the held-out texts it was {comparison.before.accuracy:.1%}."
    )
    if expected.is_corrected:
        sentence += " It allows for the changed shares of classes."
    yield sentence

    doubts = comparison.reasons_to_doubt
    if doubts:
        names = ", ".join(name_of(change) for change in doubts)
        yield (
            f"That is a guess: probabilities may be wrong for texts that differ in more than their "
            f"classes ({names}). Label some of them to know."
        )
    if comparison.measured:
        low, high = comparison.measured.interval
        yield (
            f"Measured on {counted(comparison.measured.num_labelled, 'labelled text')}: "
            f"{comparison.measured.accuracy:.1%} (95% interval: {low:.1%} to {high:.1%})."
        )


def notes(drift: Drift) -> Iterator[str]:
    """What a reader should know besides."""
    texts = drift.texts
    num_independent = round(texts.figures.num_independent)
    if num_independent < len(texts.figures):
        yield (
            f"Some texts belong together or are equal: they count as {num_independent:,} "
            "independent ones."
        )
    least_w = noticeable_w(drift.whole.before, drift.whole.now)
    is_tested = drift.whole.change_of(Figure.CLASSES) is not None
    if is_tested and not drift.whole.alarms and least_w > SMALLEST_W:
        yield (
            f"Changes of the shares of all {len(drift.label_names)} classes are only noticed from "
            f"w = {least_w:.2f}: with so many classes, smaller ones need more texts."
        )
    if texts.num_blank:
        yield f"{counted(texts.num_blank, 'text')} without words left out."
    if texts.num_without_date:
        yield f"{counted(texts.num_without_date, 'text')} without a date, in no week or month."
    if texts.new_labels:
        labels = [label for label, _ in texts.new_labels.most_common()]
        sentence = f"Labels that are no classes of the model: {listed(labels)}"
        if not texts.figures.is_labelled.any():
            sentence += "; none is one, so labels are not used"
        yield f"{sentence}."


class ClassRow(NamedTuple):
    """A class with its share of the later and of the held-out texts."""

    label: str
    num_texts: int
    change: Change


def class_rows(comparison: Comparison) -> list[ClassRow]:
    """The classes, the most frequent first."""
    changes = [change for change in comparison.changes if change.label is not None]
    counts = comparison.now.num_predicted.tolist()
    rows = [
        ClassRow(change.label or "", count, change)
        for count, change in zip(counts, changes, strict=True)
    ]
    return sorted(rows, key=lambda row: -row.num_texts)


def figure_changes(comparison: Comparison) -> list[Change]:
    """The changes but those of single classes."""
    return [change for change in comparison.changes if change.label is None]


def terminal_text(drift: Drift) -> str:
    """The result for a terminal."""
    whole = drift.whole
    lines = [
        f"{drift.source}: {counted(len(whole.now), 'text')} beside {len(whole.before):,} held-out "
        f"texts of {drift.run}",
        headline(drift),
        *[f"  {words}" for words in alarms_in_words(whole)],
        "",
        *accuracy_sentences(whole),
        *notes(drift),
        "",
        *_figure_table(whole),
        "",
        *_class_table(whole),
    ]
    if drift.texts.new_words:
        words = [
            f"{word} ({count:,})" for word, count in drift.texts.new_words.most_common(MOST_WORDS)
        ]
        lines += ["", f"words never seen, with the number of texts: {', '.join(words)}"]
    if drift.periods:
        lines += ["", *_period_table(drift)]
    return "".join(f"{printable(line)}\n" for line in lines)


def _figure_table(comparison: Comparison) -> Iterator[str]:
    rows = [["", "before", "now", "size", "alarm from", "p", ""]]
    for change in figure_changes(comparison):
        rows.append(
            [
                name_of(change),
                value_of(change.figure, change.before),
                value_of(change.figure, change.now),
                f"{change.size:.2f}",
                f"{change.smallest:g}",
                p_value_as_text(change.p_value),
                "ALARM" if change.is_alarm else "",
            ]
        )
    return aligned(rows)


def _class_table(comparison: Comparison) -> Iterator[str]:
    all_rows = class_rows(comparison)
    rows = [["class", "texts", "before", "now", "p", ""]]
    for row in all_rows[:MOST_CLASSES]:
        rows.append(
            [
                printable(row.label),
                f"{row.num_texts:,}",
                value_of(Figure.CLASS, row.change.before),
                value_of(Figure.CLASS, row.change.now),
                p_value_as_text(row.change.p_value),
                "ALARM" if row.change.is_alarm else "",
            ]
        )
    yield from aligned(rows)
    if len(all_rows) > MOST_CLASSES:
        yield f"... and {len(all_rows) - MOST_CLASSES:,} more; --output or --json has all"


def _period_table(drift: Drift) -> Iterator[str]:
    rows = [["", "texts", "unfamiliar", "unsure", "never seen", "confidence", "to expect", ""]]
    for name, comparison in drift.periods.items():
        cells = [name, f"{len(comparison.now):,}"]
        for figure in SHOWN_BY_PERIOD:
            change = comparison.change_of(figure)
            cells.append(value_of(figure, change.now) if change else "")
        cells.append(value_of(Figure.ACCURACY, comparison.expected.accuracy))
        rows.append([*cells, comparison.verdict])
    return aligned(rows)


# Values for programs


def to_dict(drift: Drift) -> dict[str, Any]:
    """The result as JSON values."""
    return {
        "run": drift.run,
        "input": drift.source,
        "has_drifted": drift.has_drifted,
        **_comparison_values(drift.whole),
        "held_out": {
            "texts": len(drift.whole.before),
            "independent_texts": drift.whole.before.num_independent,
            "accuracy": drift.whole.before.accuracy,
        },
        "blank_texts": drift.texts.num_blank,
        "unknown_words": dict(drift.texts.new_words.most_common(MOST_WORDS_LISTED)),
        "unknown_labels": dict(drift.texts.new_labels.most_common(MOST_WORDS_LISTED)),
        "periods": {
            name: _comparison_values(comparison) for name, comparison in drift.periods.items()
        },
    }


def _comparison_values(comparison: Comparison) -> dict[str, Any]:
    measured = None
    if comparison.measured:
        measured = {
            "accuracy": comparison.measured.accuracy,
            "accuracy_interval": list(comparison.measured.interval),
            "labelled_texts": comparison.measured.num_labelled,
        }
    return {
        "verdict": comparison.verdict,
        "texts": len(comparison.now),
        "independent_texts": comparison.now.num_independent,
        "expected_accuracy": comparison.expected.accuracy,
        "expected_accuracy_interval": list(comparison.expected.interval),
        "is_guess": bool(comparison.reasons_to_doubt),
        "measured": measured,
        "figures": {change.figure: _change_values(change) for change in figure_changes(comparison)},
        "classes": {
            row.label: {"texts": row.num_texts, **_change_values(row.change)}
            for row in class_rows(comparison)
        },
    }


def _change_values(change: Change) -> dict[str, Any]:
    return {
        "before": change.before,
        "now": change.now,
        "size": change.size,
        "alarm_from": change.smallest,
        "p_value": change.p_value,
        "is_alarm": change.is_alarm,
    }
